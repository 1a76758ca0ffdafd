import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The protocol of benches/peers/adapter.py, for adapters in Java: `java Adapter NAME redis://…`. */
public class Adapter {
    /** Whether a request passes, and the milliseconds until a retry, or null. */
    record Answer(boolean ok, Double waitMs) {}

    /** A rule is a limit and its period in milliseconds. */
    interface Hit {
        Answer hit(String key, List<long[]> rules) throws Exception;
    }

    private static final ObjectMapper JSON = new ObjectMapper();

    /** The system's monotonic clock, which other processes share. */
    private static double now() {
        return System.nanoTime() / 1e9;
    }

    private static void until(double at) throws InterruptedException {
        long nanoseconds = (long) ((at - now()) * 1e9);
        if (nanoseconds > 0) Thread.sleep(nanoseconds / 1_000_000, (int) (nanoseconds % 1_000_000));
    }

    private static Map<String, Object> one(Hit hit, JsonNode call, List<long[]> rules) throws Exception {
        var said = new LinkedHashMap<String, Object>();
        until(call.path("at").asDouble(0));
        said.put("sent", now());
        try {
            Answer answer = hit.hit(call.get("key").asText(), rules);
            said.put("ok", answer.ok());
            said.put("wait_ms", answer.waitMs());
        } catch (Exception error) {
            said.put("error", error.toString());
        }
        said.put("got", now());
        return said;
    }

    private static Map<String, Object> many(Hit hit, JsonNode call, List<long[]> rules) throws Exception {
        double began = now(), ends = began + call.path("seconds").asDouble(600), rate = call.path("rate").asDouble(0);
        int keys = call.get("keys").asInt(), count = call.path("count").asInt(Integer.MAX_VALUE);
        List<Long> late = new ArrayList<>();
        while (late.size() < count) {
            double due = rate > 0 ? began + late.size() / rate : now();
            if (Math.max(due, now()) >= ends) break;
            until(due);
            hit.hit(call.get("key").asText() + ":" + late.size() % keys, rules);
            late.add((long) (1e6 * (now() - due)));
        }
        Collections.sort(late);
        var said = new LinkedHashMap<String, Object>();
        said.put("made", late.size());
        said.put("seconds", now() - began);
        said.put("p50_us", late.isEmpty() ? null : late.get(late.size() / 2));
        said.put("p99_us", late.isEmpty() ? null : late.get(late.size() * 99 / 100));
        return said;
    }

    public static void main(String[] words) throws Exception {
        Hit hit = Limiters.make(words[0], words[1]);
        System.out.println(JSON.writeValueAsString(Map.of("ready", words[0])));
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            JsonNode call = JSON.readTree(line);
            List<long[]> rules = new ArrayList<>();
            for (JsonNode rule : call.get("rules")) rules.add(new long[] {rule.get(0).asLong(), rule.get(1).asLong()});
            var said = call.has("keys") ? many(hit, call, rules) : one(hit, call, rules);
            System.out.println(JSON.writeValueAsString(said));
        }
    }
}
