import java.util.ArrayList;
import java.util.List;
import org.apache.kudu.Type;
import org.apache.kudu.client.AlterTableOptions;
import org.apache.kudu.client.AsyncKuduScanner.ReadMode;
import org.apache.kudu.client.AsyncKuduScanner.RowDataFormat;
import org.apache.kudu.client.Internals;
import org.apache.kudu.client.KuduClient;
import org.apache.kudu.client.KuduException;
import org.apache.kudu.client.KuduPredicate;
import org.apache.kudu.client.KuduPredicate.ComparisonOp;
import org.apache.kudu.client.KuduScanner;
import org.apache.kudu.client.KuduScanner.KuduScannerBuilder;
import org.apache.kudu.client.KuduSession;
import org.apache.kudu.client.KuduTable;
import org.apache.kudu.client.RowResult;
import org.apache.kudu.client.RowResultIterator;

/** What scans find, of which columns, how many, in which order, and of which moment. */
public final class Scans {
  private Scans() {}

  private static KuduTable filled(String name, long rows) throws KuduException {
    KuduTable table = Tables.hashed(name);
    Tables.fill(table, 0, rows);
    return table;
  }

  private static KuduScannerBuilder builder(KuduTable table) {
    return Cases.client.newScannerBuilder(table);
  }

  private static KuduPredicate compare(KuduTable table, String column, ComparisonOp op, Object value) {
    return KuduPredicate.newComparisonPredicate(table.getSchema().getColumn(column), op, value);
  }

  public static void severalPredicatesAtOnce() throws Exception {
    KuduTable table = filled("several", 1000);
    KuduScanner scanner =
        builder(table)
            .setProjectedColumnNames(List.of("s", "id"))
            .addPredicate(compare(table, "id", ComparisonOp.GREATER_EQUAL, 100L))
            .addPredicate(compare(table, "id", ComparisonOp.LESS, 130L))
            .addPredicate(compare(table, "n", ComparisonOp.EQUAL, 4))
            .addPredicate(KuduPredicate.newIsNotNullPredicate(table.getSchema().getColumn("s")))
            .build();
    // 114 is divided by three.
    Cases.same(List.of("STRING s=s104, INT64 id=104", "STRING s=s124, INT64 id=124"), Tables.rows(scanner));
    KuduScanner none =
        builder(table)
            .addPredicate(compare(table, "n", ComparisonOp.LESS, 3))
            .addPredicate(compare(table, "n", ComparisonOp.GREATER, 5))
            .build();
    Cases.same(List.of(), Tables.ids(none));
  }

  /** The client has no call that makes one, but sends one that it is given. */
  public static void bloomFilters() throws Exception {
    KuduTable table = filled("filtered", 1000);
    byte[][] numbers = {Internals.cell(3), Internals.cell(7)};
    KuduPredicate ofNumbers = Internals.inBloomFilter(table.getSchema().getColumn("n"), numbers);
    Cases.same(200, Tables.ids(builder(table).addPredicate(ofNumbers).build()).size());
    byte[][] strings = {"s100".getBytes(), "s200".getBytes()};
    KuduPredicate ofStrings = Internals.inBloomFilter(table.getSchema().getColumn("s"), strings);
    KuduScanner some = builder(table).setProjectedColumnNames(List.of("id")).addPredicate(ofStrings).build();
    List<Long> found = Tables.sortedIds(some);
    Cases.holds(found.containsAll(List.of(100L, 200L)) && found.size() < 30, found);
    KuduPredicate empty = Internals.inBloomFilter(table.getSchema().getColumn("s"));
    Cases.same(List.of(), Tables.ids(builder(table).addPredicate(empty).build()));
  }

  public static void projectionsAndCounts() throws Exception {
    KuduTable table = filled("projected", 500);
    KuduScanner backwards = builder(table).setProjectedColumnNames(List.of("s", "n", "id")).limit(1).build();
    RowResult row = backwards.nextRows().next();
    Cases.same(List.of("s", "n", "id"), row.getSchema().getColumns().stream().map(c -> c.getName()).toList());
    int counted = 0;
    for (KuduScanner count = builder(table).setProjectedColumnNames(List.of()).build(); count.hasMoreRows(); ) {
      counted += count.nextRows().getNumRows();
    }
    Cases.same(500, counted);
  }

  public static void limits() throws Exception {
    KuduTable table = filled("limited", 1000);
    for (int limit : new int[] {1, 10, 600, 1000, 5000}) {
      Cases.same(Math.min(limit, 1000), Tables.ids(builder(table).limit(limit).build()).size());
    }
    KuduPredicate small = compare(table, "n", ComparisonOp.EQUAL, 3);
    Cases.same(7, Tables.ids(builder(table).addPredicate(small).limit(7).batchSizeBytes(1000).build()).size());
    KuduScanner first = builder(ranged("limited_in_order")).setFaultTolerant(true).limit(3).build();
    Cases.same(List.of(0L, 1L, 2L), Tables.ids(first));
  }

  private static KuduTable ranged(String name) throws KuduException {
    KuduTable table = Tables.ranged(name, 0, 4000, 1000);
    Tables.fill(table, 0, 4000);
    return table;
  }

  public static void batches() throws Exception {
    KuduTable table = filled("in_batches", 20_000);
    for (RowDataFormat format : RowDataFormat.values()) {
      KuduScanner scanner = builder(table).batchSizeBytes(8000).build();
      scanner.setRowDataFormat(format);
      List<Long> ids = new ArrayList<>();
      int batches = 0;
      while (scanner.hasMoreRows()) {
        RowResultIterator batch = scanner.nextRows();
        batches += batch.getNumRows() > 0 ? 1 : 0;
        batch.forEachRemaining(row -> ids.add(row.getLong("id")));
        if (scanner.hasMoreRows() && batches == 3) {
          scanner.keepAlive();
        }
      }
      Cases.holds(batches > 4, batches + " batches of four tablets");
      Cases.same(Tables.between(0, 20_000), ids.stream().sorted().toList());
    }
    KuduScanner left = builder(table).batchSizeBytes(8000).build();
    left.nextRows();
    left.close();
    Cases.holds(left.isClosed(), "still open");
  }

  public static void orderAndBounds() throws Exception {
    KuduTable table = ranged("ordered");
    Cases.same(Tables.between(0, 4000), Tables.ids(builder(table).setFaultTolerant(true).batchSizeBytes(8000).build()));
    KuduScanner part =
        builder(table)
            .setFaultTolerant(true)
            .lowerBound(Tables.bound(950))
            .exclusiveUpperBound(Tables.bound(2050))
            .build();
    Cases.same(Tables.between(950, 2050), Tables.ids(part));
  }

  public static void aSnapshotStaysAsItIs() throws Exception {
    KuduTable table = filled("at_a_snapshot", 100);
    KuduScanner first = builder(table).readMode(ReadMode.READ_AT_SNAPSHOT).build();
    List<String> before = Tables.rows(first);
    long timestamp = Internals.snapshotOf(first);
    KuduSession session = Cases.client.newSession();
    session.apply(Tables.with(table.newUpdate(), 1, 1000, null));
    session.apply(Tables.with(table.newDelete(), 2, null, null));
    session.apply(Tables.with(table.newInsert(), 500, null, null));
    session.close();
    KuduScannerBuilder again = builder(table).readMode(ReadMode.READ_AT_SNAPSHOT).snapshotTimestampRaw(timestamp);
    Cases.same(before, Tables.rows(again.build()));
    List<Long> newest = Tables.sortedIds(builder(table).readMode(ReadMode.READ_LATEST).build());
    Cases.holds(!newest.contains(2L) && newest.contains(500L), newest);
    Cases.same(newest, Tables.sortedIds(builder(table).readMode(ReadMode.READ_AT_SNAPSHOT).build()));
    KuduScannerBuilder longAgo = builder(table).readMode(ReadMode.READ_AT_SNAPSHOT).snapshotTimestampMicros(1);
    KuduException refused = Cases.fails(() -> Tables.ids(longAgo.build()));
    Cases.holds(refused.getMessage().contains("napshot"), refused);
  }

  /** What one client wrote, another reads that was told when it was. */
  public static void yourWritesAreRead() throws Exception {
    KuduTable table = filled("your_writes", 10);
    try (KuduClient other = Cases.connect()) {
      for (long id = 10; id < 60; id++) {
        KuduSession session = Cases.client.newSession();
        long written = session.apply(Tables.with(table.newInsert(), id, null, null)).getWriteTimestampRaw();
        session.close();
        other.updateLastPropagatedTimestamp(Cases.client.getLastPropagatedTimestamp());
        KuduTable there = other.openTable(table.getName());
        KuduScanner scanner = other.newScannerBuilder(there).readMode(ReadMode.READ_YOUR_WRITES).build();
        Cases.same(Tables.between(0, id + 1), Tables.sortedIds(scanner));
        Cases.holds(Internals.snapshotOf(scanner) >= written, "a snapshot before the write");
        Cases.holds(other.getLastPropagatedTimestamp() >= written, "a clock before the write");
      }
    }
  }

  public static void aColumnThatIsNotThere() throws Exception {
    KuduTable table = filled("without_it", 1);
    // The client knows it, the server does not any more.
    Cases.client.alterTable(table.getName(), new AlterTableOptions().dropColumn("s"));
    KuduException gone = Cases.fails(() -> Tables.ids(builder(table).setProjectedColumnNames(List.of("s")).build()));
    Cases.holds(gone.getMessage().contains("s"), gone);
    Cases.same(Type.INT32, Cases.client.openTable(table.getName()).getSchema().getColumnByIndex(1).getType());
  }
}
