import java.util.List;
import java.util.Map;
import org.apache.kudu.ColumnSchema;
import org.apache.kudu.Type;
import org.apache.kudu.client.AlterTableOptions;
import org.apache.kudu.client.CreateTableOptions;
import org.apache.kudu.client.Insert;
import org.apache.kudu.client.KuduClient;
import org.apache.kudu.client.KuduException;
import org.apache.kudu.client.KuduSession;
import org.apache.kudu.client.KuduTable;
import org.apache.kudu.client.OperationResponse;

/** Tables that are made, listed, altered and dropped, and what clients notice that had them open. */
public final class Catalog {
  private Catalog() {}

  public static void tablesAreListedAndTheirNamesAreTaken() throws Exception {
    KuduTable table = Tables.hashed("catalogued.first");
    Tables.hashed("catalogued.second");
    Cases.holds(Cases.client.tableExists("catalogued.first"), "it was just made");
    Cases.holds(!Cases.client.tableExists("catalogued.third"), "it was never made");
    Cases.same(
        List.of("catalogued.first", "catalogued.second"),
        Cases.client.getTablesList("catalogued.").getTablesList().stream().sorted().toList());
    Cases.same(table.getTableId(), Cases.client.openTable("catalogued.first").getTableId());
    Cases.holds(Cases.fails(() -> Tables.hashed("catalogued.first")).getStatus().isAlreadyPresent(), "made twice");
    Cases.holds(Cases.fails(() -> Cases.client.openTable("catalogued.third")).getStatus().isNotFound(), "opened");
    Cases.holds(Cases.fails(() -> Cases.client.deleteTable("catalogued.third")).getStatus().isNotFound(), "dropped");
    Cases.same(1, Cases.client.listTabletServers().getTabletServersCount());
  }

  public static void columnsAreAddedRenamedAndDropped() throws Exception {
    KuduTable table = Tables.hashed("altered");
    Tables.fill(table, 1, 2);
    Cases.client.alterTable(
        "altered",
        new AlterTableOptions()
            .addNullableColumn("later", Type.STRING)
            .addColumn("counted", Type.INT64, 5L)
            .renameColumn("n", "number")
            .dropColumn("s"));
    KuduTable altered = Cases.client.openTable("altered");
    String was = "INT64 id=1, INT32 number=1, STRING later=NULL, INT64 counted=5";
    Cases.same(List.of(was), Tables.rows(Tables.scan(altered)));

    Cases.client.alterTable("altered", new AlterTableOptions().changeDefault("counted", 6L));
    KuduSession session = Cases.client.newSession();
    altered = Cases.client.openTable("altered");
    Cases.same(6L, altered.getSchema().getColumn("counted").getDefaultValue());
    Cases.holds(!session.apply(id2(altered)).hasRowError(), "the insert");
    Cases.same(
        List.of(was, "INT64 id=2, INT32 number=NULL, STRING later=NULL, INT64 counted=6"),
        Tables.rows(Tables.scan(altered)));

    // A table that is held from before it was altered has a column that is no longer there.
    OperationResponse stale = session.apply(Tables.with(table.newInsert(), 3, 1, "s"));
    Cases.holds(stale.hasRowError(), "a column that was dropped was written");
    session.close();
    Cases.client.alterTable("altered", new AlterTableOptions().renameTable("altered_and_renamed"));
    Cases.holds(!Cases.client.tableExists("altered"), "it has another name");
    Cases.same(2, Tables.sortedIds(Tables.scan(Cases.client.openTable("altered_and_renamed"))).size());
  }

  private static Insert id2(KuduTable table) {
    Insert insert = table.newInsert();
    insert.getRow().addLong("id", 2);
    return insert;
  }

  public static void alterationsThatCannotBe() throws Exception {
    Tables.hashed("not_altered");
    for (AlterTableOptions options :
        List.of(
            new AlterTableOptions().dropColumn("id"),
            new AlterTableOptions().dropColumn("nowhere"),
            new AlterTableOptions().renameColumn("n", "s"),
            new AlterTableOptions().addNullableColumn("n", Type.INT8))) {
      Cases.fails(() -> Cases.client.alterTable("not_altered", options));
    }
    Cases.same(Tables.columns().size(), Cases.client.openTable("not_altered").getSchema().getColumnCount());
  }

  public static void attributesOfColumnsAreTold() throws Exception {
    ColumnSchema column =
        new ColumnSchema.ColumnSchemaBuilder("s", Type.STRING)
            .encoding(ColumnSchema.Encoding.DICT_ENCODING)
            .compressionAlgorithm(ColumnSchema.CompressionAlgorithm.LZ4)
            .desiredBlockSize(4096)
            .comment("said of it")
            .build();
    Tables.create(
        "attributed",
        List.of(Tables.key("id", Type.INT64), column),
        new CreateTableOptions()
            .addHashPartitions(List.of("id"), 2)
            .setExtraConfigs(Map.of("oribi.durability", "periodic:50")));
    KuduTable opened = Cases.client.openTable("attributed");
    ColumnSchema told = opened.getSchema().getColumn("s");
    Cases.same(ColumnSchema.Encoding.DICT_ENCODING, told.getEncoding());
    Cases.same(ColumnSchema.CompressionAlgorithm.LZ4, told.getCompressionAlgorithm());
    Cases.same(4096, told.getDesiredBlockSize());
    Cases.same("said of it", told.getComment());
    Cases.same("periodic:50", opened.getExtraConfig().get("oribi.durability"));
  }

  public static void statistics() throws Exception {
    KuduTable table = Tables.hashed("measured");
    Cases.same(0L, table.getTableStatistics().getLiveRowCount());
    Tables.fill(table, 0, 1000);
    Cases.same(1000L, Cases.client.getTableStatistics("measured").getLiveRowCount());
    Cases.holds(table.getTableStatistics().getOnDiskSize() >= 0, "size");
  }

  /** Of which clients that have it open are told, also when there is another of the same name. */
  public static void aTableThatWasDropped() throws Exception {
    KuduTable table = Tables.hashed("dropped");
    Tables.fill(table, 0, 10);
    try (KuduClient other = Cases.connect()) {
      other.deleteTable("dropped");
    }
    gone(table);
    KuduTable again = Tables.hashed("dropped");
    gone(table);
    Cases.same(List.of(), Tables.sortedIds(Tables.scan(again)));
  }

  private static void gone(KuduTable table) throws Exception {
    KuduException scanned = Cases.fails(() -> Tables.sortedIds(Tables.scan(table)));
    Cases.holds(scanned.getStatus().isNotFound(), scanned);
    KuduSession session = Cases.client.newSession();
    session.setTimeoutMillis(5000);
    try {
      OperationResponse response = session.apply(Tables.with(table.newInsert(), 77, null, null));
      Cases.holds(response.hasRowError(), "a row of a table that was dropped was written");
      Cases.holds(response.getRowError().getErrorStatus().isNotFound(), response.getRowError());
    } catch (KuduException e) {
      Cases.holds(e.getStatus().isNotFound(), e);
    }
    session.close();
  }
}
