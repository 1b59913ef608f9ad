import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kudu.ColumnSchema;
import org.apache.kudu.Type;
import org.apache.kudu.client.CreateTableOptions;
import org.apache.kudu.client.Internals;
import org.apache.kudu.client.KuduClient;
import org.apache.kudu.client.KuduScanner;
import org.apache.kudu.client.KuduSession;
import org.apache.kudu.client.KuduTable;
import org.apache.kudu.client.Operation;
import org.apache.kudu.client.OperationResponse;
import org.apache.kudu.client.RowResult;
import org.apache.kudu.client.SessionConfiguration.FlushMode;

/** Connections that break and servers that are started again, in the middle of things. */
public final class Faults {
  private Faults() {}

  private static final long SCANNED = 5000;

  /** Scans in order, and does something each time that 1000 rows came. */
  private static void scanWith(KuduClient client, String name, Cases.Action fault) throws Exception {
    KuduTable table = client.openTable(name);
    KuduScanner scanner = client.newScannerBuilder(table).setFaultTolerant(true).batchSizeBytes(8000).build();
    List<Long> ids = new ArrayList<>();
    while (scanner.hasMoreRows()) {
      long before = ids.size() / 1000;
      for (RowResult row : scanner.nextRows()) {
        ids.add(row.getLong("id"));
      }
      if (ids.size() / 1000 > before) {
        fault.run();
      }
    }
    Cases.same(Tables.between(0, SCANNED), ids);
  }

  /** What others write meanwhile is not seen. */
  public static void anOrderedScanGoesOnOverBrokenConnections() throws Exception {
    KuduTable table = Tables.ranged("scanned_on", 0, SCANNED, SCANNED / 2);
    Tables.fill(table, 0, SCANNED);
    AtomicLong next = new AtomicLong(SCANNED);
    try (KuduClient client = Cases.connect()) {
      scanWith(
          client,
          "scanned_on",
          () -> {
            Internals.breakConnections(client);
            delete(table, next.decrementAndGet());
          });
    }
    Cases.same(Tables.between(0, next.get()), Tables.sortedIds(Tables.scan(table)));
    Cases.holds(next.get() < SCANNED - 2, "nothing was deleted");
  }

  public static void anOrderedScanGoesOnOverRestarts() throws Exception {
    scanOver("scanned_over_restarts", "restart");
  }

  public static void anOrderedScanGoesOnOverKills() throws Exception {
    scanOver("scanned_over_kills", "kill");
  }

  /** Rows are deleted and changed before and after the server is gone: the scan sees none of it. */
  private static void scanOver(String name, String end) throws Exception {
    KuduTable table = Tables.ranged(name, 0, SCANNED, SCANNED / 2);
    Tables.fill(table, 0, SCANNED);
    AtomicLong next = new AtomicLong(SCANNED);
    AtomicLong ends = new AtomicLong();
    try (KuduClient client = Cases.connect()) {
      scanWith(
          client,
          name,
          () -> {
            delete(table, next.decrementAndGet());
            if (ends.incrementAndGet() <= 2) {
              Cases.ask(end);
            }
            delete(table, next.decrementAndGet());
          });
    }
    Cases.same(Tables.between(0, next.get()), Tables.sortedIds(Tables.scan(table)));
    Cases.holds(ends.get() >= 2, ends);
  }

  private static void delete(KuduTable table, long id) throws Exception {
    KuduSession session = Cases.client.newSession();
    OperationResponse deleted = session.apply(Tables.with(table.newDelete(), id, null, null));
    Cases.holds(!deleted.hasRowError(), deleted.getRowError());
    session.close();
  }

  private interface Fault {
    void at(KuduClient client, long id) throws Exception;
  }

  private static final long LOADED = 20_000;

  /** Inserts in the background; the table stays, so that it can be counted through another door: `n = 7 * id`. */
  private static void loadWith(String name, Fault fault) throws Exception {
    List<ColumnSchema> columns = List.of(Tables.key("id", Type.INT64), Tables.nullable("n", Type.INT64));
    Tables.create(name, columns, new CreateTableOptions().addHashPartitions(List.of("id"), 4));
    try (KuduClient client = Cases.connect()) {
      KuduTable table = client.openTable(name);
      KuduSession session = client.newSession();
      session.setFlushMode(FlushMode.AUTO_FLUSH_BACKGROUND);
      session.setMutationBufferSpace(200, 1 << 20);
      session.setTimeoutMillis(120_000);
      for (long id = 0; id < LOADED; id++) {
        Operation insert = table.newInsert();
        insert.getRow().addLong("id", id);
        insert.getRow().addLong("n", 7 * id);
        session.apply(insert);
        fault.at(client, id);
      }
      session.close();
      // Of a row that was written twice it would be said that it is there.
      Cases.same(List.of(), List.of(session.getPendingErrors().getRowErrors()));
      long count = 0;
      long sum = 0;
      for (RowResult row : client.newScannerBuilder(table).build()) {
        count++;
        sum += row.getLong("n");
      }
      Cases.same(LOADED, count);
      Cases.same(7 * LOADED * (LOADED - 1) / 2, sum);
    }
  }

  public static void aLoadGoesOnOverBrokenConnections() throws Exception {
    loadWith(
        "loaded_over_breaks",
        (client, id) -> {
          if (id % 5000 == 2500) {
            Internals.breakConnections(client);
          }
        });
  }

  /** Each time the load goes on while the server dies and comes back. */
  public static void aLoadGoesOnOverKills() throws Exception {
    Deque<Thread> killers = new ArrayDeque<>();
    loadWith(
        "loaded_over_kills",
        (client, id) -> {
          if (id % 10_000 == 5_000) {
            killers.add(new Thread(() -> Cases.ask("kill")));
            killers.getLast().start();
          } else if (id % 10_000 == 9_999) {
            killers.getLast().join();
          }
        });
    Cases.same(2, killers.size());
  }
}
