package ratelimit

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// cases reads a table that all clients share.
func cases(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(root("clients/cases", name))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestAllClientsCountTheSameNetworks(t *testing.T) {
	var all struct {
		Cases []struct {
			Given, Network string
			Prefix         *int
		}
	}
	cases(t, "addresses.json", &all)
	for _, one := range all.Cases {
		prefix := 64
		if one.Prefix != nil {
			prefix = *one.Prefix
		}
		if got := Network(one.Given, prefix); got != one.Network {
			t.Errorf("Network(%q, %d) is %q, expected %q", one.Given, prefix, got, one.Network)
		}
	}
}

// sent is a reply of the server, written as JSON.
func sent(given any) any {
	switch given := given.(type) {
	case float64:
		return int64(given)
	case []any:
		list := []any{}
		for _, one := range given {
			list = append(list, sent(one))
		}
		return list
	case map[string]any:
		list := []any{}
		for name, one := range given {
			list = append(list, name, sent(one))
		}
		return list
	}
	return given
}

func TestAllClientsTellTheSameFields(t *testing.T) {
	var all struct{ Cases []map[string]any }
	cases(t, "fields.json", &all)
	for _, one := range all.Cases {
		report, err := readFull(sent(one["reply"]), &question{limits: []Limit{{"k", nil}}})
		if err != nil {
			t.Fatal(one["about"], err)
		}
		for name, choice := range map[string]Headers{"draft-11": HeadersDraft11, "legacy": HeadersLegacy, "none": HeadersNone} {
			told := map[string]any{}
			for _, field := range choice.Fields(report) {
				told[strings.ToLower(field.Name)] = field.Value
			}
			got, _ := json.Marshal(told)
			expected, _ := json.Marshal(one[name])
			if string(got) != string(expected) {
				t.Errorf("%s, %s: %s, expected %s", one["about"], name, got, expected)
			}
		}
	}
}

func TestReportsOfTheScript(t *testing.T) {
	var all struct {
		Reports []struct {
			Rules []string
			Cost  any
			Reply []any
			Rule  map[string]any
		}
	}
	cases(t, "script.json", &all)
	for _, one := range all.Reports {
		q := &question{limits: []Limit{{"k", one.Rules}}, full: true}
		if units, plain := one.Cost.(float64); plain {
			Cost(int64(units))(q)
		} else {
			Costs(map[string]int64{"b": 50})(q)
		}
		short, err := readShort(sent(one.Reply), q)
		if err != nil {
			t.Fatal(err)
		}
		var told, expected []any
		for _, rule := range scriptReport(short.Reply, q).Rules {
			times := []any{ms(rule.Period), max(-1, ms(rule.Wait)), max(-1, ms(rule.Next)), ms(rule.Reset)}
			if rule.Wait < 0 {
				times[1] = -1
			}
			told = append(times, rule.Rule, rule.Cost, rule.Denies, rule.Limit, rule.Quota, rule.Remaining)
		}
		if one.Rule != nil {
			for _, name := range strings.Fields("period_ms wait_ms next_ms reset_ms rule cost denies limit quota remaining") {
				expected = append(expected, sent(one.Rule[name]))
			}
		}
		if got, wanted := fmt.Sprint(told), fmt.Sprint(expected); got != wanted {
			t.Errorf("%v: %s, expected %s", one.Rules, got, wanted)
		}
	}
}

func TestThePackageHasTheScriptOfAllLanguages(t *testing.T) {
	shared, err := os.ReadFile(root("clients/script/ratelimit.lua"))
	if err != nil || script != string(shared) {
		t.Error("clients/go/ratelimit.lua differs from clients/script/ratelimit.lua: copy it", err)
	}
}
