import java.util.ArrayList;
import java.util.List;
import java.util.stream.LongStream;
import org.apache.kudu.ColumnSchema;
import org.apache.kudu.Schema;
import org.apache.kudu.Type;
import org.apache.kudu.client.CreateTableOptions;
import org.apache.kudu.client.KuduException;
import org.apache.kudu.client.KuduScanner;
import org.apache.kudu.client.KuduSession;
import org.apache.kudu.client.KuduTable;
import org.apache.kudu.client.Operation;
import org.apache.kudu.client.PartialRow;
import org.apache.kudu.client.RowResult;
import org.apache.kudu.client.SessionConfiguration.FlushMode;

/** Tables that cases share the shape of, their rows, and what scans find. */
final class Tables {
  private Tables() {}

  static ColumnSchema key(String name, Type type) {
    return new ColumnSchema.ColumnSchemaBuilder(name, type).key(true).build();
  }

  static ColumnSchema nullable(String name, Type type) {
    return new ColumnSchema.ColumnSchemaBuilder(name, type).nullable(true).build();
  }

  static KuduTable create(String name, List<ColumnSchema> columns, CreateTableOptions options) throws KuduException {
    return Cases.client.createTable(name, new Schema(columns), options.setNumReplicas(1));
  }

  static List<ColumnSchema> columns() {
    return List.of(key("id", Type.INT64), nullable("n", Type.INT32), nullable("s", Type.STRING));
  }

  /** `id` in four hash buckets, and two columns that may be null. */
  static KuduTable hashed(String name) throws KuduException {
    return create(name, columns(), new CreateTableOptions().addHashPartitions(List.of("id"), 4));
  }

  /** The same columns, in ranges `[from, from + step)` of `id`, up to `to`. */
  static KuduTable ranged(String name, long from, long to, long step) throws KuduException {
    CreateTableOptions options = new CreateTableOptions().setRangePartitionColumns(List.of("id"));
    for (long lower = from; lower < to; lower += step) {
      options.addRangePartition(bound(lower), bound(lower + step));
    }
    return create(name, columns(), options);
  }

  static PartialRow bound(long id) {
    return bound(columns(), id);
  }

  static PartialRow bound(List<ColumnSchema> columns, long id) {
    PartialRow row = new Schema(columns).newPartialRow();
    row.addLong("id", id);
    return row;
  }

  /** Sets what is not null of a row of these columns. */
  static <O extends Operation> O with(O operation, long id, Integer n, String s) {
    operation.getRow().addLong("id", id);
    if (n != null) {
      operation.getRow().addInt("n", n);
    }
    if (s != null) {
      operation.getRow().addString("s", s);
    }
    return operation;
  }

  /** Inserts ids `from` to below `to`, with `n = id % 10`, and `s` that is null of every third. */
  static void fill(KuduTable table, long from, long to) throws KuduException {
    KuduSession session = Cases.client.newSession();
    session.setFlushMode(FlushMode.AUTO_FLUSH_BACKGROUND);
    for (long id = from; id < to; id++) {
      session.apply(with(table.newInsert(), id, (int) (id % 10), id % 3 == 0 ? null : "s" + id));
    }
    session.flush();
    Cases.same(0, session.countPendingErrors());
    session.close();
  }

  static KuduScanner scan(KuduTable table) {
    return Cases.client.newScannerBuilder(table).build();
  }

  /** The rows, each as the client prints it, sorted as text. */
  static List<String> rows(KuduScanner scanner) {
    List<String> rows = new ArrayList<>();
    for (RowResult row : scanner) {
      rows.add(row.rowToString());
    }
    rows.sort(null);
    return rows;
  }

  /** The ids of the rows, in the order in which they come. */
  static List<Long> ids(KuduScanner scanner) {
    List<Long> ids = new ArrayList<>();
    for (RowResult row : scanner) {
      ids.add(row.getLong("id"));
    }
    return ids;
  }

  static List<Long> sortedIds(KuduScanner scanner) {
    return ids(scanner).stream().sorted().toList();
  }

  /** From the first to below the last. */
  static List<Long> between(long from, long to) {
    return LongStream.range(from, to).boxed().toList();
  }
}
