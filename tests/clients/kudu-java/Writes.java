import java.util.Arrays;
import java.util.List;
import java.util.stream.LongStream;
import org.apache.kudu.client.KuduException;
import org.apache.kudu.client.KuduSession;
import org.apache.kudu.client.KuduTable;
import org.apache.kudu.client.Operation;
import org.apache.kudu.client.OperationResponse;
import org.apache.kudu.client.RowError;
import org.apache.kudu.client.RowErrorsAndOverflowStatus;
import org.apache.kudu.client.SessionConfiguration.FlushMode;

/** Operations on rows, how sessions send them, and how they tell of those that fail. */
public final class Writes {
  private Writes() {}

  private static KuduSession session(FlushMode mode) {
    KuduSession session = Cases.client.newSession();
    session.setFlushMode(mode);
    return session;
  }

  private static void apply(KuduSession session, Operation operation) throws KuduException {
    OperationResponse response = session.apply(operation);
    Cases.holds(!response.hasRowError(), response.getRowError());
    Cases.holds(response.getWriteTimestampRaw() > 0, "no timestamp");
  }

  public static void insertUpdateUpsertDelete() throws Exception {
    KuduTable table = Tables.hashed("crud");
    KuduSession session = session(FlushMode.AUTO_FLUSH_SYNC);
    for (long id = 1; id <= 4; id++) {
      apply(session, Tables.with(table.newInsert(), id, 10, "old"));
    }
    apply(session, Tables.with(table.newUpdate(), 1, 11, null));
    Operation toNull = Tables.with(table.newUpdate(), 2, null, null);
    toNull.getRow().setNull("s");
    apply(session, toNull);
    // What an upsert does not set stays, and is null in a new row.
    apply(session, Tables.with(table.newUpsert(), 3, 13, null));
    apply(session, Tables.with(table.newUpsert(), 5, 15, null));
    apply(session, Tables.with(table.newDelete(), 4, null, null));
    Cases.same(
        List.of(
            "INT64 id=1, INT32 n=11, STRING s=old",
            "INT64 id=2, INT32 n=10, STRING s=NULL",
            "INT64 id=3, INT32 n=13, STRING s=old",
            "INT64 id=5, INT32 n=15, STRING s=NULL"),
        Tables.rows(Tables.scan(table)));
    session.close();
  }

  public static void formsThatIgnore() throws Exception {
    Cases.holds(Cases.client.supportsIgnoreOperations(), "the IGNORE forms are not there");
    KuduTable table = Tables.hashed("ignoring");
    Tables.fill(table, 1, 3);
    KuduSession session = session(FlushMode.AUTO_FLUSH_SYNC);
    apply(session, Tables.with(table.newInsertIgnore(), 1, 100, "ignored"));
    apply(session, Tables.with(table.newInsertIgnore(), 3, 100, "inserted"));
    apply(session, Tables.with(table.newUpdateIgnore(), 1, 101, null));
    apply(session, Tables.with(table.newUpdateIgnore(), 8, 100, "ignored"));
    apply(session, Tables.with(table.newUpsertIgnore(), 4, 100, "upserted"));
    apply(session, Tables.with(table.newDeleteIgnore(), 2, null, null));
    apply(session, Tables.with(table.newDeleteIgnore(), 9, null, null));
    Cases.same(
        List.of(
            "INT64 id=1, INT32 n=101, STRING s=s1",
            "INT64 id=3, INT32 n=100, STRING s=inserted",
            "INT64 id=4, INT32 n=100, STRING s=upserted"),
        Tables.rows(Tables.scan(table)));
    session.close();
  }

  public static void rowsOfABatchAreAppliedInTheirOrder() throws Exception {
    KuduTable table = Tables.hashed("in_order");
    KuduSession session = session(FlushMode.MANUAL_FLUSH);
    session.apply(Tables.with(table.newInsert(), 1, 1, "a"));
    session.apply(Tables.with(table.newUpdate(), 1, 2, null));
    session.apply(Tables.with(table.newDelete(), 1, null, null));
    session.apply(Tables.with(table.newInsert(), 1, 3, null));
    session.apply(Tables.with(table.newUpsert(), 1, null, "b"));
    Cases.same(List.of(), OperationResponse.collectErrors(session.flush()));
    Cases.same(List.of("INT64 id=1, INT32 n=3, STRING s=b"), Tables.rows(Tables.scan(table)));
    session.close();
  }

  public static void backgroundFlushCollectsErrorsOfRows() throws Exception {
    KuduTable table = Tables.hashed("in_background");
    Tables.fill(table, 100, 200);
    KuduSession session = session(FlushMode.AUTO_FLUSH_BACKGROUND);
    for (long id = 0; id < 5000; id++) {
      session.apply(Tables.with(table.newInsert(), id, 1, null));
    }
    session.flush();
    Cases.same(100, session.countPendingErrors());
    RowErrorsAndOverflowStatus pending = session.getPendingErrors();
    Cases.holds(!pending.isOverflowed(), "too many errors");
    Cases.same(Tables.between(100, 200), idsOf(Arrays.asList(pending.getRowErrors())));
    for (RowError error : pending.getRowErrors()) {
      Cases.holds(error.getErrorStatus().isAlreadyPresent(), error);
    }
    Cases.same(0, session.countPendingErrors());
    Cases.same(5000, Tables.sortedIds(Tables.scan(table)).size());
    session.close();
  }

  private static List<Long> idsOf(List<RowError> errors) {
    return errors.stream().map(e -> e.getOperation().getRow().getLong("id")).sorted().toList();
  }

  public static void anErrorCollectorThatIsFullSaysSo() throws Exception {
    KuduTable table = Tables.hashed("collecting");
    KuduSession session = session(FlushMode.AUTO_FLUSH_BACKGROUND);
    session.setErrorCollectorSpace(10);
    for (long id = 0; id < 50; id++) {
      session.apply(Tables.with(table.newDelete(), id, null, null));
    }
    session.flush();
    RowErrorsAndOverflowStatus pending = session.getPendingErrors();
    Cases.same(10, pending.getRowErrors().length);
    Cases.holds(pending.isOverflowed(), "there were more");
    session.close();
  }

  public static void manualFlushSendsWhenItIsTold() throws Exception {
    KuduTable table = Tables.hashed("by_hand");
    KuduSession session = session(FlushMode.MANUAL_FLUSH);
    session.setMutationBufferSpace(100, 1 << 20);
    for (long id = 0; id < 100; id++) {
      Cases.same(null, session.apply(Tables.with(table.newInsert(), id, 0, null)));
    }
    KuduException full = Cases.fails(() -> session.apply(Tables.with(table.newInsert(), 100, 0, null)));
    Cases.holds(full.getMessage().contains("buffer"), full);
    Cases.holds(session.hasPendingOperations(), "they were sent");
    Cases.same(List.of(), Tables.sortedIds(Tables.scan(table)));
    List<OperationResponse> responses = session.flush();
    Cases.same(List.of(), OperationResponse.collectErrors(responses));
    Cases.same(Tables.between(0, 100), Tables.sortedIds(Tables.scan(table)));
    session.close();
  }

  public static void errorsNameTheirRow() throws Exception {
    KuduTable table = Tables.ranged("with_errors", 0, 100, 50);
    Tables.fill(table, 0, 10);
    KuduSession session = session(FlushMode.MANUAL_FLUSH);
    session.apply(Tables.with(table.newInsert(), 50, null, null));
    session.apply(Tables.with(table.newInsert(), 7, null, null));
    session.apply(Tables.with(table.newUpdate(), 20, 1, null));
    session.apply(Tables.with(table.newDelete(), 60, null, null));
    session.apply(Tables.with(table.newInsert(), 500, null, null));
    session.apply(Tables.with(table.newInsert(), 51, null, null));
    List<RowError> errors = OperationResponse.collectErrors(session.flush());
    Cases.same(List.of(7L, 20L, 60L, 500L), idsOf(errors));
    for (RowError error : errors) {
      long id = error.getOperation().getRow().getLong("id");
      Cases.same(id == 7, error.getErrorStatus().isAlreadyPresent());
      // No tablet has 500.
      Cases.same(id != 7, error.getErrorStatus().isNotFound());
    }
    Cases.holds(errors.stream().anyMatch(e -> e.getMessage().contains("key already present")), errors);
    // The others of the batch were applied.
    Cases.same(List.of(50L, 51L), Tables.sortedIds(Tables.scan(table)).subList(10, 12));
    session.close();
  }

  public static void errorsThatASessionIgnores() throws Exception {
    KuduTable table = Tables.hashed("not_told");
    Tables.fill(table, 0, 10);
    KuduSession session = session(FlushMode.AUTO_FLUSH_SYNC);
    session.setIgnoreAllDuplicateRows(true);
    session.setIgnoreAllNotFoundRows(true);
    apply(session, Tables.with(table.newInsert(), 5, 0, null));
    apply(session, Tables.with(table.newDelete(), 50, null, null));
    Cases.same(Tables.between(0, 10), Tables.sortedIds(Tables.scan(table)));
    session.close();
  }

  /** The client counts what the server says that it did. */
  public static void metricsOfWrites() throws Exception {
    KuduTable table = Tables.hashed("counted");
    KuduSession session = session(FlushMode.MANUAL_FLUSH);
    LongStream.range(0, 20).forEach(id -> applyUnchecked(session, Tables.with(table.newInsert(), id, 1, null)));
    LongStream.range(15, 25).forEach(id -> applyUnchecked(session, Tables.with(table.newInsertIgnore(), id, 1, null)));
    LongStream.range(0, 3).forEach(id -> applyUnchecked(session, Tables.with(table.newDelete(), id, null, null)));
    session.flush();
    Cases.same(25L, session.getWriteOpMetrics().getMetric("successful_inserts"));
    Cases.same(5L, session.getWriteOpMetrics().getMetric("insert_ignore_errors"));
    Cases.same(3L, session.getWriteOpMetrics().getMetric("successful_deletes"));
    session.close();
  }

  private static void applyUnchecked(KuduSession session, Operation operation) {
    try {
      session.apply(operation);
    } catch (KuduException e) {
      throw new AssertionError(e);
    }
  }
}
