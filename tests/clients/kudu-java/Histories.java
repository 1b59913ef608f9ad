import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.UnaryOperator;
import org.apache.kudu.ColumnSchema;
import org.apache.kudu.Type;
import org.apache.kudu.client.AsyncKuduScanner.ReadMode;
import org.apache.kudu.client.KuduClient;
import org.apache.kudu.client.KuduException;
import org.apache.kudu.client.KuduPredicate;
import org.apache.kudu.client.KuduPredicate.ComparisonOp;
import org.apache.kudu.client.KuduScanner;
import org.apache.kudu.client.KuduScanner.KuduScannerBuilder;
import org.apache.kudu.client.KuduSession;
import org.apache.kudu.client.KuduTable;
import org.apache.kudu.client.KuduTransaction;
import org.apache.kudu.client.Operation;
import org.apache.kudu.client.OperationResponse;
import org.apache.kudu.client.PartialRow;
import org.apache.kudu.client.RowResult;
import org.apache.kudu.client.SessionConfiguration.FlushMode;

/**
 * Transactions of many clients at the same time, step by step as they are told: `CLIENT COMMAND …` in a line of the input is answered by a
 * line `CLIENT ANSWER`. What is read and changed is the text of a row, a list or a number. A client of Kudu reads it once it has locked its row by a
 * write, so that nobody changes it until the transaction ends.
 */
public final class Histories {
  private static KuduClient client;

  private KuduTransaction transaction;
  private KuduSession session;
  /** The lists that the transaction has changed. */
  private final Map<String, String> own = new HashMap<>();

  public static void main(String[] arguments) throws IOException {
    client = new KuduClient.KuduClientBuilder(arguments[0]).build();
    Map<String, Histories> clients = new HashMap<>();
    Map<String, ExecutorService> threads = new HashMap<>();
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = input.readLine()) != null; ) {
      String[] words = line.split(" ");
      Histories told = clients.computeIfAbsent(words[0], name -> new Histories());
      threads
          .computeIfAbsent(words[0], name -> Executors.newSingleThreadExecutor())
          .execute(() -> answer(words[0], told.answer(words)));
    }
    System.exit(0);
  }

  private static synchronized void answer(String name, String answer) {
    System.out.println(name + " " + answer);
  }

  private String answer(String[] words) {
    try {
      return switch (words[1]) {
        case "begin" -> begin();
        case "read" -> "is " + locked(words[2], words[3], words[4]);
        case "append" -> write(words[2], words[3], words[4], before -> before + "," + words[4]);
        case "add" -> write(words[2], words[3], "0", before -> "" + (parse(before) + parse(words[4])));
        case "scan" -> scan(words[2], words[3], words[4]);
        case "commit" -> commit();
        default -> rollback("told to");
      };
    } catch (Exception failure) {
      return rollback(failure.toString());
    }
  }

  private String begin() throws KuduException {
    transaction = client.newTransaction();
    session = transaction.newKuduSession();
    session.setFlushMode(FlushMode.AUTO_FLUSH_SYNC);
    own.clear();
    return "begun";
  }

  /** Writes what nobody looks at, and reads. */
  private String locked(String name, String key, String number) throws KuduException {
    KuduTable table = client.openTable(name);
    Operation touched = of(table, key);
    ColumnSchema column = table.getSchema().getColumn(table.getSchema().hasColumn("touched") ? "touched" : "flags");
    if (column.getType() == Type.INT64) {
      touched.getRow().addLong(column.getName(), Long.parseLong(number));
    } else {
      touched.getRow().addInt(column.getName(), Integer.parseInt(number));
    }
    apply(touched);
    String changed = own.get(name + key);
    if (changed != null) {
      return changed;
    }
    KuduScannerBuilder builder = client.newScannerBuilder(table);
    builder.addPredicate(compare(table, ComparisonOp.EQUAL, key));
    for (RowResult row : builder.readMode(ReadMode.READ_LATEST).build()) {
      return text(row);
    }
    throw new IllegalStateException("there is no list " + key);
  }

  private static long parse(String number) {
    return Long.parseLong(number);
  }

  private String write(String name, String key, String number, UnaryOperator<String> change) throws KuduException {
    String before = locked(name, key, number);
    KuduTable table = client.openTable(name);
    Operation changed = of(table, key);
    String after = change.apply(before);
    if (table.getSchema().getColumnByIndex(1).getType() == Type.BINARY) {
      changed.getRow().addBinary(1, bytes(after));
    } else {
      changed.getRow().addString(1, after);
    }
    apply(changed);
    own.put(name + key, after);
    return "is " + before;
  }

  private static KuduPredicate compare(KuduTable table, ComparisonOp comparison, String key) {
    ColumnSchema column = table.getSchema().getColumnByIndex(0);
    return column.getType() == Type.BINARY
        ? KuduPredicate.newComparisonPredicate(column, comparison, bytes(key))
        : KuduPredicate.newComparisonPredicate(column, comparison, Integer.parseInt(key));
  }

  private static Operation of(KuduTable table, String key) {
    Operation update = table.newUpdate();
    PartialRow row = update.getRow();
    if (table.getSchema().getColumnByIndex(0).getType() == Type.BINARY) {
      row.addBinary(0, bytes(key));
    } else {
      row.addInt(0, Integer.parseInt(key));
    }
    return update;
  }

  private void apply(Operation operation) throws KuduException {
    OperationResponse response = session.apply(operation);
    if (response.hasRowError()) {
      throw new IllegalStateException(response.getRowError().toString());
    }
  }

  /** The rows between two keys, all of one moment; a transaction of its own. */
  private String scan(String name, String first, String last) throws KuduException {
    KuduTable table = client.openTable(name);
    KuduScanner scanner =
        client
            .newScannerBuilder(table)
            .readMode(ReadMode.READ_AT_SNAPSHOT)
            .addPredicate(compare(table, ComparisonOp.GREATER_EQUAL, first))
            .addPredicate(compare(table, ComparisonOp.LESS_EQUAL, last))
            .build();
    StringJoiner rows = new StringJoiner(" ");
    for (RowResult row : scanner) {
      rows.add(key(row) + "=" + text(row));
    }
    return "rows " + rows;
  }

  private String commit() {
    try {
      transaction.commit();
      return "committed";
    } catch (Exception failure) {
      // Another client may have been answered that it was.
      return "unknown " + said(failure);
    }
  }

  private String rollback(String why) {
    try {
      if (transaction != null) {
        transaction.rollback();
      }
    } catch (Exception alreadyOver) {
      why += "; " + alreadyOver;
    }
    transaction = null;
    return "aborted " + why.replace('\n', ' ');
  }

  private static String said(Exception failure) {
    return failure.toString().replace('\n', ' ');
  }

  private static String text(RowResult row) {
    if (row.getColumnType(1) != Type.BINARY) {
      return row.getString(1);
    }
    return StandardCharsets.UTF_8.decode(row.getBinary(1)).toString();
  }

  private static String key(RowResult row) {
    if (row.getColumnType(0) != Type.BINARY) {
      return String.valueOf(row.getInt(0));
    }
    return StandardCharsets.UTF_8.decode(row.getBinary(0)).toString();
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
