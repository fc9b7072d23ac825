import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotAncestryValidator;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;
import org.apache.iceberg.rest.RESTCatalog;

/**
 * Appends as the committers of Flink and of Kafka Connect do, through Iceberg's Java client of a REST catalog.
 *
 * <p>Each line of input is a request in JSON, each line of output the answer to it. Arguments: the catalog's URL, its
 * warehouse. A commit is {"table", "files": [{"path", "bytes", "rows"}]} and the words of its committer: {"job",
 * "operator", "checkpoint"} are Flink's, {"topic", "group", "expected", "offsets"} are Kafka Connect's.
 *
 * <ul>
 *   <li>{"do": "commit", …}: {"outcome"}, which is "committed" or the name of the exception, and its "message"
 *   <li>{"do": "race", "commits": […]}: {"outcomes"} of commits that were all made ready on the same version
 *   <li>{"do": "checkpoint", "table", "job", "operator"}: {"found"}, the newest one of that job, or -1
 *   <li>{"do": "offsets", "table", "topic", "group"}: {"found"}, the newest ones of that group
 * </ul>
 */
public final class Committers {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final long PATIENCE_S = 60;

  private final RESTCatalog catalog = new RESTCatalog();

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = System.out;
    System.setOut(System.err);
    Committers committers = new Committers();
    committers.catalog.initialize("lake", Map.of("uri", arguments[0], "warehouse", arguments[1]));
    BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    String line;
    while ((line = requests.readLine()) != null) {
      ObjectNode answer;
      try {
        answer = committers.answer(JSON.readTree(line));
      } catch (Exception failed) {
        failed.printStackTrace();
        answer = JSON.createObjectNode().put("failed", failed.toString());
      }
      answers.println(JSON.writeValueAsString(answer));
      answers.flush();
    }
    System.exit(0);
  }

  private ObjectNode answer(JsonNode request) throws Exception {
    ObjectNode answer = JSON.createObjectNode();
    switch (request.get("do").asText()) {
      case "commit":
        return outcome(loaded(request), request);
      case "race":
        return race(request.get("commits"));
      case "checkpoint":
        return answer.put("found", newestCheckpoint(loaded(request), text(request, "job"), text(request, "operator")));
      default:
        Table table = loaded(request);
        return answer.set("found", newestOffsets(ancestors(table), offsetsWord(request)));
    }
  }

  private Table loaded(JsonNode request) {
    return catalog.loadTable(TableIdentifier.parse(text(request, "table")));
  }

  /** Flink walks from the newest snapshot to the newest one of its own job and operator. */
  private static long newestCheckpoint(Table table, String job, String operator) {
    for (Snapshot snapshot : ancestors(table)) {
      Map<String, String> summary = snapshot.summary();
      String other = summary.get("flink.operator-id");
      boolean mine = job.equals(summary.get("flink.job-id")) && (other == null || other.equals(operator));
      String found = summary.get("flink.max-committed-checkpoint-id");
      if (mine && found != null) {
        return Long.parseLong(found);
      }
    }
    return -1;
  }

  /** Kafka Connect walks to the newest snapshot that has the offsets of its topic and group. */
  private static JsonNode newestOffsets(Iterable<Snapshot> newestFirst, String word) throws Exception {
    for (Snapshot snapshot : newestFirst) {
      String found = snapshot.summary().get(word);
      if (found != null) {
        return JSON.readTree(found);
      }
    }
    return JSON.createObjectNode();
  }

  private static List<Snapshot> ancestors(Table table) {
    List<Snapshot> found = new ArrayList<>();
    Snapshot snapshot = table.currentSnapshot();
    while (snapshot != null) {
      found.add(snapshot);
      snapshot = snapshot.parentId() == null ? null : table.snapshot(snapshot.parentId());
    }
    return found;
  }

  private static ObjectNode outcome(Table table, JsonNode request) {
    ObjectNode answer = JSON.createObjectNode();
    try {
      append(table, request).commit();
      return answer.put("outcome", "committed");
    } catch (RuntimeException refused) {
      return answer.put("outcome", refused.getClass().getSimpleName()).put("message", refused.getMessage());
    }
  }

  private static AppendFiles append(Table table, JsonNode request) {
    AppendFiles append = table.newAppend();
    for (JsonNode file : request.path("files")) {
      append.appendFile(
          DataFiles.builder(PartitionSpec.unpartitioned())
              .withPath(text(file, "path"))
              .withFormat("parquet")
              .withFileSizeInBytes(file.get("bytes").asLong())
              .withRecordCount(file.get("rows").asLong())
              .build());
    }
    if (request.has("job")) {
      append.set("flink.max-committed-checkpoint-id", text(request, "checkpoint"));
      append.set("flink.job-id", text(request, "job"));
      append.set("flink.operator-id", text(request, "operator"));
      append.toBranch("main");
    } else {
      append.set(offsetsWord(request), request.get("offsets").toString());
      append.set("kafka.connect.commit-id", "00000000-0000-0000-0000-000000000001");
      append.validateWith(new UnmovedOffsets(request));
    }
    return append;
  }

  /** Newer versions of Kafka Connect compare, at each attempt, the offsets that its base has with those it began with. */
  private static final class UnmovedOffsets implements SnapshotAncestryValidator {
    private final JsonNode request;
    private String found = "";

    UnmovedOffsets(JsonNode request) {
      this.request = request;
    }

    @Override
    public boolean validate(Iterable<Snapshot> ancestors) {
      try {
        JsonNode newest = newestOffsets(ancestors, offsetsWord(request));
        found = newest.toString();
        return newest.equals(request.get("expected"));
      } catch (Exception unreadable) {
        throw new IllegalStateException(unreadable);
      }
    }

    @Override
    public String errorMessage() {
      return "stale offsets: expected " + request.get("expected") + ", committed are " + found;
    }
  }

  private ObjectNode race(JsonNode commits) throws Exception {
    CyclicBarrier ready = new CyclicBarrier(commits.size());
    ExecutorService threads = Executors.newFixedThreadPool(commits.size());
    try {
      List<Future<ObjectNode>> running = new ArrayList<>();
      for (JsonNode commit : commits) {
        TableOperations operations = ((HasTableOperations) loaded(commit)).operations();
        Table table = new BaseTable(new Together(operations, ready), text(commit, "table"));
        running.add(threads.submit(() -> outcome(table, commit)));
      }
      ArrayNode outcomes = JSON.createArrayNode();
      for (Future<ObjectNode> each : running) {
        outcomes.add(each.get(PATIENCE_S, TimeUnit.SECONDS));
      }
      return JSON.createObjectNode().set("outcomes", outcomes);
    } finally {
      threads.shutdownNow();
    }
  }

  /** A table whose first commit is sent when those of all others are ready, too. */
  private static final class Together implements TableOperations {
    private final TableOperations inside;
    private final CyclicBarrier ready;
    private boolean waited = false;

    Together(TableOperations inside, CyclicBarrier ready) {
      this.inside = inside;
      this.ready = ready;
    }

    @Override
    public void commit(TableMetadata base, TableMetadata metadata) {
      if (!waited) {
        waited = true;
        try {
          ready.await(PATIENCE_S, TimeUnit.SECONDS);
        } catch (Exception late) {
          throw new IllegalStateException(late);
        }
      }
      inside.commit(base, metadata);
    }

    @Override
    public TableMetadata current() {
      return inside.current();
    }

    @Override
    public TableMetadata refresh() {
      return inside.refresh();
    }

    @Override
    public FileIO io() {
      return inside.io();
    }

    @Override
    public EncryptionManager encryption() {
      return inside.encryption();
    }

    @Override
    public String metadataFileLocation(String name) {
      return inside.metadataFileLocation(name);
    }

    @Override
    public LocationProvider locationProvider() {
      return inside.locationProvider();
    }
  }

  private static String offsetsWord(JsonNode request) {
    return "kafka.connect.offsets." + text(request, "topic") + "." + text(request, "group");
  }

  private static String text(JsonNode node, String name) {
    return node.get(name).asText();
  }
}
