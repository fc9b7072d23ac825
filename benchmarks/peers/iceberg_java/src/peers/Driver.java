package peers;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.CatalogProperties;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.IcebergBuild;
import org.apache.iceberg.Metrics;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.SupportsNamespaces;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalog;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/**
 * The driver of Iceberg Java: the protocol of `benchmarks/peers/protocol.py`, and `newAppend` or `newFastAppend`.
 *
 * <p>Options: `catalog` is `jdbc` or `rest`; whoever creates the table of a REST catalog starts the reference server as
 * a process of its own. `retries` raises `commit.retry.num-retries`, `fast` appends without merging manifests.
 */
public final class Driver {
  private static final int COLUMNS = 20;
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final long START_PATIENCE_MS = 60_000;

  private JsonNode place;
  private Catalog catalog;
  private Table table;
  private Process server;

  private interface Work {
    void run() throws Exception;
  }

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = System.out;
    System.setOut(System.err);
    Driver driver = new Driver();
    BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    String line;
    while ((line = requests.readLine()) != null) {
      JsonNode request = JSON.readTree(line);
      ObjectNode answer;
      try {
        answer = driver.answer(request);
      } catch (Exception error) {
        error.printStackTrace();
        answer = JSON.createObjectNode().put("error", reason(error));
      }
      answers.println(JSON.writeValueAsString(answer));
      answers.flush();
      if (request.has("close")) {
        break;
      }
    }
    driver.stopServer();
    System.exit(0);
  }

  private ObjectNode answer(JsonNode request) throws Exception {
    ObjectNode answer = JSON.createObjectNode();
    if (request.has("open")) {
      open(request.get("open"));
      return answer.put("version", IcebergBuild.version());
    }
    if (request.has("commit")) {
      int first = request.get("commit").get(0).asInt();
      int count = request.get("commit").get(1).asInt();
      int each = request.get("each").asInt();
      Timed timed = new Timed(answer);
      for (int start = first; start < first + count; start += each) {
        int from = start;
        timed.take(() -> commit(from, each));
      }
      return answer;
    }
    if (request.has("loop")) {
      int first = request.get("loop").asInt();
      int most = request.get("most").asInt();
      double seconds = request.get("seconds").asDouble();
      Timed timed = new Timed(answer);
      long began = System.nanoTime();
      for (int number = first; number < first + most && since(began) < seconds; number++) {
        int from = number;
        timed.take(() -> commit(from, 1));
      }
      return answer.put("elapsed", since(began));
    }
    if (request.has("plan")) {
      long began = System.nanoTime();
      int files = plan(request.get("plan"));
      return answer.put("seconds", since(began)).put("files", files);
    }
    if (request.has("append") || request.has("upkeep")) {
      throw new UnsupportedOperationException("Iceberg Java's own writers are Spark, Flink and the like");
    }
    if (request.has("close")) {
      stopServer();
    }
    return answer;
  }

  private void open(JsonNode given) throws Exception {
    place = given;
    boolean creates = place.get("creates").asBoolean();
    boolean rest = text("options", "catalog").equals("rest");
    if (rest && creates) {
      startServer();
    }
    catalog = newCatalog();
    TableIdentifier name = name();
    if (creates) {
      ((SupportsNamespaces) catalog).createNamespace(name.namespace());
      Map<String, String> properties = new HashMap<>();
      if (!text("options", "retries").isEmpty()) {
        properties.put("commit.retry.num-retries", text("options", "retries"));
        properties.put("write.metadata.delete-after-commit.enabled", "true");
        properties.put("write.metadata.previous-versions-max", "10");
      }
      catalog.buildTable(name, schema()).withProperties(properties).create();
    }
    table = catalog.loadTable(name);
  }

  private Catalog newCatalog() throws Exception {
    Map<String, String> properties = storage();
    if (text("options", "catalog").equals("rest")) {
      properties.put(CatalogProperties.URI, Files.readString(addressFile()));
      RESTCatalog found = new RESTCatalog();
      found.initialize("bench", properties);
      return found;
    }
    properties.putAll(database());
    JdbcCatalog found = new JdbcCatalog();
    found.initialize(text("options", "schema"), properties);
    return found;
  }

  /** All servers share one database, so each table of a REST catalog has a namespace of its own. */
  private TableIdentifier name() {
    String namespace = text("options", "catalog").equals("rest") ? text("options", "schema") : "bench";
    return TableIdentifier.of(namespace, place.get("table").asText());
  }

  private Map<String, String> database() {
    Map<String, String> words = new HashMap<>();
    for (String word : text("options", "database").split(" ")) {
      words.put(word.split("=")[0], word.split("=")[1]);
    }
    String address = String.format("jdbc:postgresql://%s:%s/%s", words.get("host"), words.get("port"), words.get("dbname"));
    return Map.of(CatalogProperties.URI, address, "jdbc.user", words.get("user"), "jdbc.schema-version", "V1");
  }

  private Map<String, String> storage() {
    Map<String, String> properties = new HashMap<>();
    properties.put(CatalogProperties.WAREHOUSE_LOCATION, place.get("warehouse").asText());
    properties.put(CatalogProperties.FILE_IO_IMPL, "org.apache.iceberg.aws.s3.S3FileIO");
    properties.put("s3.endpoint", place.get("endpoint").asText());
    properties.put("s3.access-key-id", place.get("access_key").asText());
    properties.put("s3.secret-access-key", place.get("secret_key").asText());
    properties.put("s3.path-style-access", "true");
    properties.put("client.region", "us-east-1");
    return properties;
  }

  private void startServer() throws Exception {
    int port;
    try (ServerSocket free = new ServerSocket(0)) {
      port = free.getLocalPort();
    }
    ProcessBuilder builder =
        new ProcessBuilder(
            Path.of(System.getProperty("java.home"), "bin", "java").toString(),
            "-cp",
            System.getProperty("peers.server"),
            "org.apache.iceberg.rest.RESTCatalogServer");
    Map<String, String> properties = storage();
    properties.putAll(database());
    properties.forEach((name, value) -> builder.environment().put(variable(name), value));
    builder.environment().put("CATALOG_REST_PORT", Integer.toString(port));
    builder.redirectErrorStream(true).redirectOutput(new File(place.get("folder").asText(), "rest.err"));
    server = builder.start();
    Runtime.getRuntime().addShutdownHook(new Thread(this::stopServer));
    long limit = System.currentTimeMillis() + START_PATIENCE_MS;
    while (true) {
      try (Socket connected = new Socket("127.0.0.1", port)) {
        break;
      } catch (java.io.IOException notYet) {
        if (!server.isAlive() || System.currentTimeMillis() > limit) {
          throw new IllegalStateException("the reference REST catalog does not start: rest.err has the reason");
        }
        Thread.sleep(50);
      }
    }
    Files.writeString(addressFile(), "http://127.0.0.1:" + port);
  }

  /** The server reads property `a-b.c` from `CATALOG_A__B_C`. */
  private static String variable(String property) {
    return "CATALOG_" + property.replace("-", "__").replace(".", "_").toUpperCase();
  }

  private Path addressFile() {
    return Path.of(place.get("folder").asText(), "rest.address");
  }

  private synchronized void stopServer() {
    if (server != null) {
      server.destroyForcibly();
      server = null;
    }
  }

  private void commit(int first, int count) {
    AppendFiles append = text("options", "fast").isEmpty() ? table.newAppend() : table.newFastAppend();
    for (int number = first; number < first + count; number++) {
      append.appendFile(dataFile(number));
    }
    append.commit();
  }

  private int plan(JsonNode between) throws Exception {
    Table fresh = newCatalog().loadTable(name());
    TableScan scan = fresh.newScan();
    if (!between.isNull()) {
      scan =
          scan.filter(
              Expressions.and(
                  Expressions.greaterThanOrEqual("c0", between.get(0).asLong()),
                  Expressions.lessThanOrEqual("c0", between.get(1).asLong())));
    }
    int files = 0;
    try (CloseableIterable<FileScanTask> tasks = scan.planFiles()) {
      for (FileScanTask task : tasks) {
        files++;
      }
    }
    return files;
  }

  private static Schema schema() {
    List<Types.NestedField> fields = new ArrayList<>();
    for (int column = 0; column < COLUMNS; column++) {
      fields.add(Types.NestedField.optional(column + 1, "c" + column, type(column)));
    }
    return new Schema(fields);
  }

  private static Type type(int column) {
    if (column < 8) {
      return Types.LongType.get();
    }
    if (column < 12) {
      return Types.DoubleType.get();
    }
    return column < 16 ? Types.StringType.get() : Types.TimestampType.withoutZone();
  }

  private static Object bound(int column, long value) {
    if (column >= 8 && column < 12) {
      return value / 8.0;
    }
    return column >= 12 && column < 16 ? String.format("key-%012d", value) : (Object) value;
  }

  private DataFile dataFile(int number) {
    long rows = 10_000 + number * 37L % 5_000;
    Map<Integer, Long> values = new HashMap<>();
    Map<Integer, Long> nulls = new HashMap<>();
    Map<Integer, Long> nans = new HashMap<>();
    Map<Integer, ByteBuffer> lower = new HashMap<>();
    Map<Integer, ByteBuffer> upper = new HashMap<>();
    for (int column = 0; column < COLUMNS; column++) {
      long low = number * 1_000L + column + 1;
      values.put(column + 1, rows);
      nulls.put(column + 1, (long) (number % 7));
      if (column >= 8 && column < 12) {
        nans.put(column + 1, 0L);
      }
      lower.put(column + 1, Conversions.toByteBuffer(type(column), bound(column, low)));
      upper.put(column + 1, Conversions.toByteBuffer(type(column), bound(column, low + 999)));
    }
    return DataFiles.builder(PartitionSpec.unpartitioned())
        .withPath(table.location() + "/data/" + new UUID(0, number) + ".parquet")
        .withFormat("parquet")
        .withFileSizeInBytes(1_000_000 + number)
        .withMetrics(new Metrics(rows, null, values, nulls, nans, lower, upper))
        .build();
  }

  private String text(String group, String name) {
    return place.path(group).path(name).asText("");
  }

  private static double since(long began) {
    return (System.nanoTime() - began) / 1e9;
  }

  private static String reason(Exception error) {
    String text = error.getClass().getSimpleName() + ": " + error.getMessage();
    return text.substring(0, Math.min(300, text.length()));
  }

  /** Seconds of what succeeded, and seconds and reasons of what did not. */
  private static final class Timed {
    private final ArrayNode seconds;
    private final ArrayNode failed;

    Timed(ObjectNode answer) {
      seconds = answer.putArray("seconds");
      failed = answer.putArray("failed");
    }

    void take(Work work) {
      long began = System.nanoTime();
      try {
        work.run();
        seconds.add(since(began));
      } catch (Exception error) {
        failed.addArray().add(since(began)).add(reason(error));
      }
    }
  }
}
