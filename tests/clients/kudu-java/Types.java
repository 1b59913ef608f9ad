import java.math.BigDecimal;
import java.sql.Date;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.IntFunction;
import org.apache.kudu.ColumnSchema;
import org.apache.kudu.Type;
import org.apache.kudu.client.AsyncKuduScanner.RowDataFormat;
import org.apache.kudu.client.CreateTableOptions;
import org.apache.kudu.client.KuduPredicate;
import org.apache.kudu.client.KuduPredicate.ComparisonOp;
import org.apache.kudu.client.KuduScanner;
import org.apache.kudu.client.KuduSession;
import org.apache.kudu.client.KuduTable;
import org.apache.kudu.client.Operation;
import org.apache.kudu.client.OperationResponse;
import org.apache.kudu.client.PartialRow;
import org.apache.kudu.client.RowResult;
import org.apache.kudu.client.SessionConfiguration.FlushMode;
import org.apache.kudu.util.CharUtil;
import org.apache.kudu.util.DecimalUtil;
import org.apache.kudu.util.TimestampUtil;

/** Columns of every type: what comes back, and comparisons of each kind. */
public final class Types {
  private static final int ROWS = 100;

  private Types() {}

  /** A column whose values grow with the number of the row, from below zero where the type has that. */
  private record Column(ColumnSchema schema, IntFunction<Object> value) {
    static Column of(String name, Type type, IntFunction<Object> value) {
      return new Column(Tables.nullable(name, type), value);
    }

    static Column decimal(int precision, IntFunction<Object> value) {
      ColumnSchema.ColumnSchemaBuilder schema =
          new ColumnSchema.ColumnSchemaBuilder("decimal" + precision, Type.DECIMAL).nullable(true);
      return new Column(schema.typeAttributes(DecimalUtil.typeAttributes(precision, 2)).build(), value);
    }

    /** As the client takes it for a default and in a list, unlike elsewhere. */
    Object inner(int i) {
      Object outer = value.apply(i);
      return outer instanceof Timestamp timestamp ? TimestampUtil.timestampToMicros(timestamp) : outer;
    }

    String name() {
      return schema.getName();
    }
  }

  private static final List<Column> COLUMNS =
      List.of(
          Column.of("int8", Type.INT8, i -> ends(i, Byte.MIN_VALUE, Byte.MAX_VALUE, (byte) (i - 50))),
          Column.of("int16", Type.INT16, i -> ends(i, Short.MIN_VALUE, Short.MAX_VALUE, (short) ((i - 50) * 300))),
          Column.of("int32", Type.INT32, i -> ends(i, Integer.MIN_VALUE, Integer.MAX_VALUE, (i - 50) * 40_000_000)),
          Column.of("int64", Type.INT64, i -> ends(i, Long.MIN_VALUE, Long.MAX_VALUE, (i - 50) * (1L << 56))),
          Column.of("float", Type.FLOAT, i -> ends(i, -Float.MAX_VALUE, Float.POSITIVE_INFINITY, (i - 50) / 4f)),
          Column.of("double", Type.DOUBLE, i -> ends(i, Double.NEGATIVE_INFINITY, Double.MAX_VALUE, (i - 50) * 1e300)),
          Column.of("string", Type.STRING, i -> i == 0 ? "" : String.format("%03d ü€😀", i)),
          Column.of("binary", Type.BINARY, i -> new byte[] {(byte) (i + 100), 0, (byte) -1}),
          new Column(
              new ColumnSchema.ColumnSchemaBuilder("varchar", Type.VARCHAR)
                  .nullable(true)
                  .typeAttributes(CharUtil.typeAttributes(7))
                  .build(),
              i -> String.format("%03d ü€", i)),
          Column.of("micros", Type.UNIXTIME_MICROS, i -> micros((i - 50) * 123_456_789L)),
          Column.of("date", Type.DATE, i -> Date.valueOf(LocalDate.EPOCH.plusDays((i - 50) * 1000L))),
          Column.decimal(9, i -> new BigDecimal((i - 50) + "999.25")),
          Column.decimal(18, i -> new BigDecimal((i - 50) + "999999999999.25")),
          Column.decimal(38, i -> new BigDecimal((i - 50) + "9999999999999999999999999999999.25")));

  private static Object ends(int i, Object least, Object greatest, Object between) {
    return i == 0 ? least : i == ROWS - 1 ? greatest : between;
  }

  private static Timestamp micros(long micros) {
    return Timestamp.from(Instant.EPOCH.plusNanos(micros * 1000));
  }

  /** With a row of nulls behind the others. */
  private static KuduTable filled(String name) throws Exception {
    List<ColumnSchema> columns = new ArrayList<>(List.of(Tables.key("id", Type.INT64)));
    COLUMNS.forEach(column -> columns.add(column.schema));
    columns.add(Tables.nullable("bool", Type.BOOL));
    KuduTable table = Tables.create(name, columns, new CreateTableOptions().addHashPartitions(List.of("id"), 3));
    KuduSession session = session();
    for (int i = 0; i <= ROWS; i++) {
      Operation insert = table.newInsert();
      insert.getRow().addLong("id", i);
      for (Column column : COLUMNS) {
        insert.getRow().addObject(column.name(), i < ROWS ? column.value.apply(i) : null);
      }
      insert.getRow().addObject("bool", i < ROWS ? i % 2 == 0 : null);
      session.apply(insert);
    }
    flush(session);
    return table;
  }

  private static KuduSession session() {
    KuduSession session = Cases.client.newSession();
    session.setFlushMode(FlushMode.MANUAL_FLUSH);
    return session;
  }

  private static void flush(KuduSession session) throws Exception {
    Cases.same(List.of(), OperationResponse.collectErrors(session.flush()));
    session.close();
  }

  public static void valuesComeBack() throws Exception {
    KuduTable table = filled("values");
    for (RowDataFormat format : RowDataFormat.values()) {
      KuduScanner scanner = Tables.scan(table);
      scanner.setRowDataFormat(format);
      int rows = 0;
      for (RowResult row : scanner) {
        int i = (int) row.getLong("id");
        rows++;
        for (Column column : COLUMNS) {
          Cases.same(i == ROWS, row.isNull(column.name()));
          Cases.same(plain(i < ROWS ? column.value.apply(i) : null), plain(row.getObject(column.name())));
        }
        Cases.same(i < ROWS ? i % 2 == 0 : null, row.getObject("bool"));
      }
      Cases.same(ROWS + 1, rows);
    }
    ColumnSchema varchar = table.getSchema().getColumn("varchar");
    Cases.same(7, varchar.getTypeAttributes().getLength());
    Cases.same(38, table.getSchema().getColumn("decimal38").getTypeAttributes().getPrecision());
  }

  /** Something with an `equals`; dates without the time of day that Java's have. */
  private static Object plain(Object value) {
    if (value instanceof byte[] bytes) {
      return Arrays.toString(bytes);
    }
    return value instanceof Date ? value.toString() : value;
  }

  public static void comparisons() throws Exception {
    KuduTable table = filled("compared");
    for (Column column : COLUMNS) {
      for (int at : new int[] {0, 37, ROWS - 1}) {
        check(table, column, ComparisonOp.LESS, at, Tables.between(0, at));
        check(table, column, ComparisonOp.LESS_EQUAL, at, Tables.between(0, at + 1));
        check(table, column, ComparisonOp.EQUAL, at, Tables.between(at, at + 1));
        check(table, column, ComparisonOp.GREATER_EQUAL, at, Tables.between(at, ROWS));
        check(table, column, ComparisonOp.GREATER, at, Tables.between(at + 1, ROWS));
      }
    }
    ColumnSchema bool = table.getSchema().getColumn("bool");
    Cases.same(ROWS / 2, found(table, KuduPredicate.newComparisonPredicate(bool, ComparisonOp.EQUAL, true)).size());
    Cases.same(ROWS / 2, found(table, KuduPredicate.newComparisonPredicate(bool, ComparisonOp.LESS, true)).size());
  }

  private static void check(KuduTable table, Column column, ComparisonOp op, int at, List<Long> expected) {
    ColumnSchema schema = table.getSchema().getColumn(column.name());
    KuduPredicate predicate = KuduPredicate.newComparisonPredicate(schema, op, column.value.apply(at));
    Cases.same(predicate + ": " + expected, predicate + ": " + found(table, predicate));
  }

  /** The ids of the rows that have it; the column itself is not asked for. */
  private static List<Long> found(KuduTable table, KuduPredicate predicate) {
    return Tables.sortedIds(
        Cases.client
            .newScannerBuilder(table)
            .setProjectedColumnNames(List.of("id"))
            .addPredicate(predicate)
            .build());
  }

  public static void listsAndNulls() throws Exception {
    KuduTable table = filled("listed_values");
    for (Column column : COLUMNS) {
      ColumnSchema schema = table.getSchema().getColumn(column.name());
      List<Object> some = List.of(column.inner(70), column.inner(3), column.inner(50));
      Cases.same(List.of(3L, 50L, 70L), found(table, KuduPredicate.newInListPredicate(schema, some)));
      Cases.same(List.of((long) ROWS), found(table, KuduPredicate.newIsNullPredicate(schema)));
      Cases.same(Tables.between(0, ROWS), found(table, KuduPredicate.newIsNotNullPredicate(schema)));
    }
  }

  /** Each type that a key may have as the first column of one, in which rows are in the order of values. */
  public static void keys() throws Exception {
    for (Column column : COLUMNS) {
      Type type = column.schema.getType();
      if (type == Type.FLOAT || type == Type.DOUBLE) {
        continue;
      }
      ColumnSchema first =
          new ColumnSchema.ColumnSchemaBuilder("k", type)
              .key(true)
              .typeAttributes(column.schema.getTypeAttributes())
              .build();
      List<ColumnSchema> columns = List.of(first, Tables.key("id", Type.INT64));
      KuduTable table =
          Tables.create(
              "keyed_by_" + column.name(), columns, new CreateTableOptions().setRangePartitionColumns(List.of("k")));
      KuduSession session = session();
      for (int i = ROWS - 1; i >= 0; i--) {
        Operation insert = table.newInsert();
        insert.getRow().addObject("k", column.value.apply(i));
        insert.getRow().addLong("id", i);
        session.apply(insert);
      }
      flush(session);
      Cases.same(
          Tables.between(10, 20),
          Tables.ids(
              Cases.client
                  .newScannerBuilder(table)
                  .setFaultTolerant(true)
                  .lowerBound(key(table, column.value.apply(10)))
                  .exclusiveUpperBound(key(table, column.value.apply(20)))
                  .build()));
    }
  }

  private static PartialRow key(KuduTable table, Object first) {
    PartialRow key = table.getSchema().newPartialRow();
    key.addObject("k", first);
    key.addLong("id", Long.MIN_VALUE);
    return key;
  }

  public static void defaults() throws Exception {
    List<ColumnSchema> columns = new ArrayList<>(List.of(Tables.key("id", Type.INT64)));
    for (Column column : COLUMNS) {
      columns.add(
          new ColumnSchema.ColumnSchemaBuilder(column.schema)
              .nullable(false)
              .defaultValue(column.inner(7))
              .build());
    }
    KuduTable table =
        Tables.create("defaulted", columns, new CreateTableOptions().setRangePartitionColumns(List.of("id")));
    KuduSession session = session();
    Operation insert = table.newInsert();
    insert.getRow().addLong("id", 1);
    session.apply(insert);
    flush(session);
    RowResult row = Tables.scan(table).nextRows().next();
    for (Column column : COLUMNS) {
      Cases.same(plain(column.value.apply(7)), plain(row.getObject(column.name())));
      Cases.same(plain(column.inner(7)), plain(table.getSchema().getColumn(column.name()).getDefaultValue()));
    }
  }

  /** The client cuts what is longer. */
  public static void varcharsAreCut() throws Exception {
    ColumnSchema short4 =
        new ColumnSchema.ColumnSchemaBuilder("v", Type.VARCHAR)
            .nullable(true)
            .typeAttributes(CharUtil.typeAttributes(4))
            .build();
    KuduTable table =
        Tables.create(
            "cut",
            List.of(Tables.key("id", Type.INT64), short4),
            new CreateTableOptions().setRangePartitionColumns(List.of("id")));
    KuduSession session = session();
    Operation insert = table.newInsert();
    insert.getRow().addLong("id", 1);
    insert.getRow().addVarchar("v", "äöüßabc");
    session.apply(insert);
    flush(session);
    Cases.same("äöüß", Tables.scan(table).nextRows().next().getVarchar("v"));
  }
}
