import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command-line tools, one after the other in one JVM: a start for each would take longer
 * than the tools themselves. The main method of each is called as its script would call it, with
 * its own standard input, and what it would do at the end of its process is done after it.
 *
 * <p>A job is {"case": {"class": …, "arguments": […], "input": …}}, its answer {"ok": {"status": …,
 * "out": …, "err": …}}.
 */
public final class Tools {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Tools() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader jobs = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = jobs.readLine(); line != null; line = jobs.readLine()) {
            JsonNode job = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            if (job.get("do").asText().equals("about")) {
                answer.putObject("ok");
            } else {
                answer.set("ok", run(job.get("case")));
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        System.exit(0);
    }

    private static ObjectNode run(JsonNode tool) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        List<Runnable> atTheEnd = new ArrayList<>();
        System.setIn(new ByteArrayInputStream(
            tool.get("input").asText().getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        CompletableFuture<Integer> ended = new CompletableFuture<>();
        Exit.setShutdownHookAdder((name, hook) -> atTheEnd.add(hook));
        Exit.setExitProcedure((status, message) -> end(ended, status));
        Exit.setHaltProcedure((status, message) -> end(ended, status));
        String[] arguments = JSON.convertValue(tool.get("arguments"), String[].class);
        Method main = Class.forName(tool.get("class").asText()).getMethod("main", String[].class);
        Thread thread = new Thread(() -> {
            try {
                main.invoke(null, (Object) arguments);
                ended.complete(0);
            } catch (InvocationTargetException | IllegalAccessException failed) {
                failed.printStackTrace();
                ended.complete(1);
            }
        });
        thread.setDaemon(true);
        thread.start();
        int status = ended.get();
        atTheEnd.forEach(Runnable::run);
        ObjectNode answer = JSON.createObjectNode();
        answer.put("status", status);
        answer.put("out", out.toString(StandardCharsets.UTF_8));
        answer.put("err", err.toString(StandardCharsets.UTF_8));
        return answer;
    }

    /** As with System.exit, whoever calls it never comes back. */
    private static void end(CompletableFuture<Integer> ended, int status) {
        ended.complete(status);
        while (true) {
            LockSupport.park();
        }
    }
}
