package ratelimit

import (
	"cmp"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// programs are the Go blocks of the README: whole ones, or functions to compile.
func programs(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for at, block := range strings.Split(string(text), "```go\n") {
		if at > 0 {
			code, _, _ := strings.Cut(block, "```")
			found = append(found, strings.ReplaceAll(code, "localhost:6379", address))
		}
	}
	return found
}

// build compiles a program beside the package.
func build(t *testing.T, code string) string {
	t.Helper()
	if !strings.HasPrefix(code, "package") {
		code = "package main\n\nimport (\n\t\"context\"\n\t\"errors\"\n\t\"time\"\n\n\tratelimit \"github.com/redis-ratelimit/redis-ratelimit/clients/go\"\n)\n\n" +
			code + "\nfunc work() chan int { return nil }\n\nfunc main() { _, _, _ = export, complete, errors.New }\n"
	}
	folder := filepath.Join("testdata", strings.ReplaceAll(t.Name(), "/", "-"))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll("testdata") })
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "program")
	if text, err := exec.Command("go", "build", "-o", binary, "./"+folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return binary
}

func TestTheProgramsOfTheReadme(t *testing.T) {
	all := programs(t)
	if len(all) != 3 {
		t.Fatal(len(all))
	}
	t.Run("first", func(t *testing.T) {
		told, err := exec.Command(build(t, all[0])).Output()
		if err != nil || string(told) != "allowed 4 0s <nil>\n" || !strings.Contains(all[0], "// "+strings.TrimSpace(string(told))) {
			t.Errorf("%s, %v", told, err)
		}
	})
	t.Run("middleware", func(t *testing.T) {
		port := dead(t)
		process := exec.Command(build(t, strings.ReplaceAll(all[1], "127.0.0.1:3000", port)))
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		defer stop(process)
		codes := map[int]int{}
		client := &http.Client{Timeout: 5 * time.Second}
		defer client.CloseIdleConnections()
		until(t, func() bool {
			answer, err := client.Get("http://" + port)
			if err == nil {
				_ = answer.Body.Close()
				codes[answer.StatusCode]++
			}
			return codes[200] > 0 && codes[429] > 0
		})
	})
	t.Run("holds", func(t *testing.T) { build(t, all[2]) })
}

// The names of names.json in Go's spelling.
func TestTheNamesOfAllClients(t *testing.T) {
	var lists map[string]any
	cases(t, "../conformance/names.json", &lists)
	documented, err := exec.Command("go", "doc", "-all", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	renamed := map[string]string{"Id": "ID", "Ttl": "TTL", "Error": "Err", "Ms": "Took"}
	for _, list := range lists {
		names, _ := list.([]any) // or the text about them
		for _, name := range names {
			spelled := ""
			for _, word := range strings.Split(strings.TrimSuffix(name.(string), "_ms"), "_") {
				spelled += strings.ToUpper(word[:1]) + word[1:]
			}
			if !strings.Contains(string(documented), cmp.Or(renamed[spelled], spelled)) {
				t.Errorf("%s is missing: %s", name, spelled)
			}
		}
	}
}
