import java.util.List;
import org.apache.kudu.client.Internals;
import org.apache.kudu.client.KuduException;
import org.apache.kudu.client.KuduSession;
import org.apache.kudu.client.KuduTable;
import org.apache.kudu.client.KuduTransaction;
import org.apache.kudu.client.Operation;
import org.apache.kudu.client.OperationResponse;
import org.apache.kudu.client.SessionConfiguration.FlushMode;

/** Transactions over several writes, by Kudu's own client. */
public final class Transactions {
  private Transactions() {}

  private static KuduSession session(KuduTransaction transaction) throws KuduException {
    KuduSession session = transaction.newKuduSession();
    session.setFlushMode(FlushMode.AUTO_FLUSH_SYNC);
    return session;
  }

  private static void apply(KuduSession session, Operation operation) throws KuduException {
    OperationResponse response = session.apply(operation);
    Cases.holds(!response.hasRowError(), response.getRowError());
  }

  private static List<Long> ids(KuduTable table) throws Exception {
    return Tables.sortedIds(Tables.scan(table));
  }

  public static void aCommitShowsAllRowsOfAllTablesAtOnce() throws Exception {
    KuduTable one = Tables.hashed("txn_one");
    KuduTable other = Tables.hashed("txn_other");
    KuduTransaction transaction = Cases.client.newTransaction();
    KuduSession session = session(transaction);
    for (long id = 0; id < 100; id++) {
      apply(session, Tables.with(one.newInsert(), id, 1, null));
      apply(session, Tables.with(other.newInsert(), id, 2, null));
    }
    session.flush();
    Cases.same(List.of(), ids(one));
    Cases.same(List.of(), ids(other));
    transaction.commit();
    Cases.same(Tables.between(0, 100), ids(one));
    Cases.same(Tables.between(0, 100), ids(other));
    session.close();
  }

  public static void everyOperationIsPartOfIt() throws Exception {
    KuduTable table = Tables.hashed("txn_operations");
    Tables.fill(table, 1, 5);
    KuduTransaction transaction = Cases.client.newTransaction();
    KuduSession session = session(transaction);
    apply(session, Tables.with(table.newUpdate(), 1, 11, null));
    apply(session, Tables.with(table.newDelete(), 2, null, null));
    apply(session, Tables.with(table.newUpsert(), 3, 13, null));
    apply(session, Tables.with(table.newInsert(), 9, 19, "new"));
    // It sees what it has written.
    apply(session, Tables.with(table.newUpdate(), 9, 20, null));
    apply(session, Tables.with(table.newInsert(), 2, 12, "again"));
    OperationResponse refused = session.apply(Tables.with(table.newInsert(), 9, 21, null));
    Cases.holds(refused.getRowError().getErrorStatus().isAlreadyPresent(), refused.getRowError());
    transaction.commit();
    List<String> rows = Tables.rows(Tables.scan(table));
    Cases.holds(rows.contains("INT64 id=1, INT32 n=11, STRING s=s1"), rows);
    Cases.holds(rows.contains("INT64 id=2, INT32 n=12, STRING s=again"), rows);
    Cases.holds(rows.contains("INT64 id=3, INT32 n=13, STRING s=NULL"), rows);
    Cases.holds(rows.contains("INT64 id=9, INT32 n=20, STRING s=new"), rows);
    Cases.same(5, rows.size());
    session.close();
  }

  public static void aRollbackLeavesNothing() throws Exception {
    KuduTable table = Tables.hashed("txn_rolled_back");
    KuduTransaction transaction = Cases.client.newTransaction();
    KuduSession session = session(transaction);
    apply(session, Tables.with(table.newInsert(), 1, 1, null));
    transaction.rollback();
    Cases.same(List.of(), ids(table));
    OperationResponse late = session.apply(Tables.with(table.newInsert(), 2, 1, null));
    Cases.holds(late.hasRowError(), "a write behind the rollback");
    byte[] token = left("txn_rolled_back", 3, false);
    KuduTransaction same = of(token);
    of(token).rollback();
    KuduException error = Cases.fails(same::commit);
    Cases.holds(error.getStatus().isIllegalState(), error);
    Cases.same(List.of(), ids(table));
    session.close();
  }

  public static void aCommitNeedNotBeWaitedFor() throws Exception {
    KuduTable table = Tables.hashed("txn_started");
    KuduTransaction transaction = Cases.client.newTransaction();
    KuduSession session = session(transaction);
    apply(session, Tables.with(table.newInsert(), 1, 1, null));
    transaction.startCommit();
    while (!transaction.isCommitComplete()) {
      Thread.sleep(10);
    }
    Cases.same(Tables.between(1, 2), ids(table));
    session.close();
  }

  public static void aTokenHandsItToAnotherClient() throws Exception {
    KuduTable table = Tables.hashed("txn_token");
    KuduTransaction transaction = Cases.client.newTransaction();
    KuduSession session = session(transaction);
    apply(session, Tables.with(table.newInsert(), 1, 1, null));
    byte[] token = transaction.serialize();
    try (var other = Cases.connect()) {
      KuduTransaction same = Internals.transaction(other, token);
      KuduSession others = session(same);
      apply(others, Tables.with(other.openTable("txn_token").newInsert(), 2, 1, null));
      Cases.same(List.of(), ids(table));
      same.commit();
      others.close();
    }
    Cases.same(Tables.between(1, 3), ids(table));
    session.close();
  }

  /** Begins a transaction that inserts a row and that nobody keeps alive, and returns its token. */
  private static byte[] left(String table, long id, boolean toBeKeptAlive) throws Exception {
    try (var first = Cases.connect()) {
      KuduTransaction transaction = first.newTransaction();
      KuduSession session = session(transaction);
      apply(session, Tables.with(first.openTable(table).newInsert(), id, 1, null));
      return Internals.token(transaction, toBeKeptAlive);
    }
  }

  private static KuduTransaction of(byte[] token) throws Exception {
    return Internals.transaction(Cases.client, token);
  }

  public static void whoIsSilentIsAbortedAndWhoIsKeptAliveIsNot() throws Exception {
    KuduTable table = Tables.hashed("txn_silent");
    KuduTransaction kept = of(left("txn_silent", 1, true));
    KuduTransaction silent = of(left("txn_silent", 2, false));
    // A plain write of the silent one's row waits until that is aborted.
    KuduSession session = Cases.client.newSession();
    apply(session, Tables.with(table.newUpsert(), 2, 7, null));
    KuduException error = Cases.fails(silent::commit);
    Cases.holds(error.getStatus().isIllegalState(), error);
    kept.commit();
    Cases.same(
        List.of("INT64 id=1, INT32 n=1, STRING s=NULL", "INT64 id=2, INT32 n=7, STRING s=NULL"),
        Tables.rows(Tables.scan(table)));
    session.close();
  }

  public static void whatIsOverARestartIsToldAfterIt() throws Exception {
    KuduTable table = Tables.hashed("txn_restart");
    KuduTransaction committed = Cases.client.newTransaction();
    KuduTransaction open = Cases.client.newTransaction();
    for (KuduTransaction transaction : List.of(committed, open)) {
      KuduSession session = session(transaction);
      apply(session, Tables.with(table.newInsert(), transaction == committed ? 1 : 2, 1, null));
    }
    committed.startCommit();
    Cases.ask("kill");
    Cases.holds(committed.isCommitComplete(), "it is committed");
    KuduException error = Cases.fails(open::commit);
    Cases.holds(error.getStatus().isIllegalState(), error);
    Cases.same(Tables.between(1, 2), ids(table));
  }
}
