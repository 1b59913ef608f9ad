import static org.apache.kudu.client.RangePartitionBound.EXCLUSIVE_BOUND;
import static org.apache.kudu.client.RangePartitionBound.INCLUSIVE_BOUND;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.kudu.ColumnSchema;
import org.apache.kudu.Type;
import org.apache.kudu.client.AlterTableOptions;
import org.apache.kudu.client.CreateTableOptions;
import org.apache.kudu.client.KuduClient;
import org.apache.kudu.client.KuduPartitioner;
import org.apache.kudu.client.KuduPredicate;
import org.apache.kudu.client.KuduPredicate.ComparisonOp;
import org.apache.kudu.client.KuduScanToken;
import org.apache.kudu.client.KuduSession;
import org.apache.kudu.client.KuduTable;
import org.apache.kudu.client.LocatedTablet;
import org.apache.kudu.client.Operation;
import org.apache.kudu.client.PartialRow;
import org.apache.kudu.client.RangePartitionWithCustomHashSchema;
import org.apache.kudu.client.SessionConfiguration.FlushMode;

/** Tablets by hash and range: where rows lie, which ones scans leave out, and ranges that come and go. */
public final class Partitions {
  private static final long TIMEOUT_MS = 10_000;

  private Partitions() {}

  /** Two hash dimensions over keys of two columns, one with a seed, and three ranges. */
  private static KuduTable combined(String name) throws Exception {
    CreateTableOptions options =
        new CreateTableOptions()
            .addHashPartitions(List.of("id"), 3)
            .addHashPartitions(List.of("name"), 2, 7)
            .setRangePartitionColumns(List.of("id"));
    List<ColumnSchema> columns = List.of(Tables.key("id", Type.INT64), Tables.key("name", Type.STRING));
    for (long lower : new long[] {-1000, 0, 1000}) {
      options.addRangePartition(Tables.bound(columns, lower), Tables.bound(columns, lower + 1000));
    }
    return Tables.create(name, columns, options);
  }

  private static void put(KuduSession session, KuduTable table, long id) throws Exception {
    Operation insert = table.newInsert();
    insert.getRow().addLong("id", id);
    insert.getRow().addString("name", "n" + id);
    session.apply(insert);
  }

  /** Server and client are of one mind about the tablet of each row. */
  public static void rowsLieWhereTheClientSaysTheyDo() throws Exception {
    KuduTable table = combined("combined");
    KuduSession session = Cases.client.newSession();
    session.setFlushMode(FlushMode.AUTO_FLUSH_BACKGROUND);
    for (long id = -1000; id < 2000; id += 10) {
      put(session, table, id);
    }
    session.flush();
    Cases.same(0, session.countPendingErrors());
    session.close();
    List<LocatedTablet> tablets = table.getTabletsLocations(TIMEOUT_MS);
    Cases.same(18, tablets.size());
    KuduPartitioner partitioner = new KuduPartitioner.KuduPartitionerBuilder(table).build();
    Cases.same(18, partitioner.numPartitions());
    Set<Integer> seen = new HashSet<>();
    List<Long> ids = new ArrayList<>();
    for (KuduScanToken token : Cases.client.newScanTokenBuilder(table).build()) {
      Set<Integer> ofToken = new HashSet<>();
      for (long id : Tables.ids(token.intoScanner(Cases.client))) {
        PartialRow row = table.getSchema().newPartialRow();
        row.addLong("id", id);
        row.addString("name", "n" + id);
        ofToken.add(partitioner.partitionRow(row));
        ids.add(id);
      }
      Cases.same(1, ofToken.size());
      Cases.holds(seen.addAll(ofToken), "two tablets with rows of one partition");
    }
    Cases.same(18, seen.size());
    Cases.same(300, new HashSet<>(ids).size());
    Cases.same(
        List.of("-1000 <= VALUES < 0", "0 <= VALUES < 1000", "1000 <= VALUES < 2000"),
        table.getFormattedRangePartitions(TIMEOUT_MS));
  }

  public static void scansLeaveTabletsOut() throws Exception {
    KuduTable table = combined("pruned");
    KuduSession session = Cases.client.newSession();
    for (long id = 0; id < 100; id++) {
      put(session, table, id);
    }
    session.close();
    KuduPredicate id5 = compare(table, "id", ComparisonOp.EQUAL, 5L);
    KuduPredicate name5 = compare(table, "name", ComparisonOp.EQUAL, "n5");
    pruned(table, 1, 1, id5, name5);
    pruned(table, 2, 1, id5);
    pruned(table, 9, 1, name5);
    KuduPredicate from10 = compare(table, "id", ComparisonOp.GREATER_EQUAL, 10L);
    pruned(table, 12, 90, from10);
    pruned(table, 6, 90, from10, compare(table, "id", ComparisonOp.LESS, 1000L));
    pruned(table, 0, 0, compare(table, "id", ComparisonOp.GREATER, 5000L));
  }

  private static KuduPredicate compare(KuduTable table, String column, ComparisonOp op, Object value) {
    return KuduPredicate.newComparisonPredicate(table.getSchema().getColumn(column), op, value);
  }

  private static void pruned(KuduTable table, int tablets, int rows, KuduPredicate... predicates) throws Exception {
    KuduScanToken.KuduScanTokenBuilder builder = Cases.client.newScanTokenBuilder(table);
    for (KuduPredicate predicate : predicates) {
      builder.addPredicate(predicate);
    }
    List<KuduScanToken> tokens = builder.build();
    String told = Arrays.toString(predicates);
    Cases.same(told + ": " + tablets, told + ": " + tokens.size());
    int found = 0;
    for (KuduScanToken token : tokens) {
      found += Tables.ids(token.intoScanner(Cases.client)).size();
    }
    Cases.same(told + ": " + rows, told + ": " + found);
  }

  public static void rangesComeAndGo() throws Exception {
    KuduTable table = Tables.ranged("with_ranges", 0, 20, 10);
    Tables.fill(table, 0, 20);
    KuduSession session = Cases.client.newSession();
    Cases.holds(session.apply(Tables.with(table.newInsert(), 25, null, null)).hasRowError(), "no range has 25");
    Cases.client.alterTable(
        "with_ranges",
        new AlterTableOptions()
            .addRangePartition(Tables.bound(20), Tables.bound(30))
            .dropRangePartition(Tables.bound(0), Tables.bound(10)));
    Cases.holds(!session.apply(Tables.with(table.newInsert(), 25, null, null)).hasRowError(), "a range has 25");
    Cases.holds(session.apply(Tables.with(table.newInsert(), 5, null, null)).hasRowError(), "no range has 5");
    List<Long> left = new ArrayList<>(Tables.between(10, 20));
    left.add(25L);
    Cases.same(left, Tables.sortedIds(Tables.scan(table)));
    session.close();
    for (long lower : new long[] {15, 20}) {
      AlterTableOptions overlapping =
          new AlterTableOptions().addRangePartition(Tables.bound(lower), Tables.bound(lower + 10));
      Cases.fails(() -> Cases.client.alterTable("with_ranges", overlapping));
    }
    AlterTableOptions other = new AlterTableOptions().dropRangePartition(Tables.bound(11), Tables.bound(12));
    Cases.fails(() -> Cases.client.alterTable("with_ranges", other));
    Cases.same(List.of("10 <= VALUES < 20", "20 <= VALUES < 30"), table.getFormattedRangePartitions(TIMEOUT_MS));
  }

  /** One that another client drops and adds is empty, and is found without opening the table again. */
  public static void aRangeThatIsMadeAgain() throws Exception {
    KuduTable table = Tables.ranged("made_again", 0, 20, 10);
    Tables.fill(table, 0, 20);
    try (KuduClient other = Cases.connect()) {
      other.alterTable("made_again", new AlterTableOptions().dropRangePartition(Tables.bound(0), Tables.bound(10)));
      other.alterTable("made_again", new AlterTableOptions().addRangePartition(Tables.bound(0), Tables.bound(10)));
    }
    Cases.same(Tables.between(10, 20), Tables.sortedIds(Tables.scan(table)));
    Tables.fill(table, 3, 5);
    Cases.same(12, Tables.sortedIds(Tables.scan(table)).size());
  }

  public static void boundsOfBothKinds() throws Exception {
    CreateTableOptions options =
        new CreateTableOptions()
            .setRangePartitionColumns(List.of("id"))
            .addRangePartition(
                Tables.bound(0), Tables.bound(10), EXCLUSIVE_BOUND, INCLUSIVE_BOUND)
            .addSplitRow(Tables.bound(5));
    KuduTable table = Tables.create("with_bounds", Tables.columns(), options);
    Cases.same(List.of("1 <= VALUES < 5", "5 <= VALUES < 11"), table.getFormattedRangePartitions(TIMEOUT_MS));
    Tables.fill(table, 1, 11);
    Cases.same(Tables.between(1, 11), Tables.sortedIds(Tables.scan(table)));
  }

  public static void rangesWithHashesOfTheirOwn() throws Exception {
    RangePartitionWithCustomHashSchema own =
        new RangePartitionWithCustomHashSchema(
            Tables.bound(10), Tables.bound(20), INCLUSIVE_BOUND, EXCLUSIVE_BOUND);
    own.addHashPartitions(List.of("id"), 5, 3);
    CreateTableOptions options =
        new CreateTableOptions()
            .setRangePartitionColumns(List.of("id"))
            .addHashPartitions(List.of("id"), 2)
            .addRangePartition(Tables.bound(0), Tables.bound(10))
            .addRangePartition(own);
    KuduTable table = Tables.create("with_own_hashes", Tables.columns(), options);
    Cases.same(7, table.getTabletsLocations(TIMEOUT_MS).size());
    Tables.fill(table, 0, 20);
    Cases.same(Tables.between(0, 20), Tables.sortedIds(Tables.scan(table)));
  }
}
