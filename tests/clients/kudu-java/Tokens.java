import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.kudu.client.AsyncKuduScanner.ReadMode;
import org.apache.kudu.client.KuduClient;
import org.apache.kudu.client.KuduPredicate;
import org.apache.kudu.client.KuduPredicate.ComparisonOp;
import org.apache.kudu.client.KuduScanToken;
import org.apache.kudu.client.KuduScanToken.KuduScanTokenBuilder;
import org.apache.kudu.client.KuduTable;

/** Scans that are cut in parts by one client, as bytes, and done by another. */
public final class Tokens {
  private static final long ROWS = 30_000;

  private Tokens() {}

  /** The ids that all tokens together find, each token in a client of its own. */
  private static List<Long> found(List<KuduScanToken> tokens) throws Exception {
    List<Long> ids = Collections.synchronizedList(new ArrayList<>());
    List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
    List<Thread> threads = new ArrayList<>();
    for (KuduScanToken token : tokens) {
      byte[] serialized = token.serialize();
      Thread thread =
          new Thread(
              () -> {
                try (KuduClient other = Cases.connect()) {
                  ids.addAll(Tables.ids(KuduScanToken.deserializeIntoScanner(serialized, other)));
                } catch (Throwable failure) {
                  failures.add(failure);
                }
              });
      thread.start();
      threads.add(thread);
    }
    for (Thread thread : threads) {
      thread.join();
    }
    Cases.same(List.of(), failures);
    return ids.stream().sorted().toList();
  }

  private static KuduTable filled(String name) throws Exception {
    KuduTable table = Tables.hashed(name);
    Tables.fill(table, 0, ROWS);
    return table;
  }

  public static void oneForEachTablet() throws Exception {
    KuduTable table = filled("for_tokens");
    for (boolean metadata : new boolean[] {true, false}) {
      KuduScanTokenBuilder builder = Cases.client.newScanTokenBuilder(table);
      builder.includeTableMetadata(metadata).includeTabletMetadata(metadata);
      List<KuduScanToken> tokens = builder.build();
      Set<String> tablets = new HashSet<>();
      for (KuduScanToken token : tokens) {
        tablets.add(new String(token.getTablet().getTabletId()));
        Cases.same(1, token.getTablet().getReplicas().size());
      }
      Cases.same(4, tablets.size());
      Cases.same(Tables.between(0, ROWS), found(tokens));
    }
  }

  public static void withPredicatesProjectionAndMoment() throws Exception {
    KuduTable table = filled("for_tokens_of_some");
    KuduPredicate some =
        KuduPredicate.newComparisonPredicate(table.getSchema().getColumn("id"), ComparisonOp.LESS, 100L);
    List<KuduScanToken> tokens =
        Cases.client
            .newScanTokenBuilder(table)
            .addPredicate(some)
            .setProjectedColumnNames(List.of("id"))
            .readMode(ReadMode.READ_AT_SNAPSHOT)
            .setFaultTolerant(true)
            .batchSizeBytes(1000)
            .build();
    Cases.same(Tables.between(0, 100), found(tokens));
  }

  /** Whatever the number of parts, they have each row once. */
  public static void splitBySize() throws Exception {
    KuduTable table = filled("for_small_tokens");
    for (long bytes : new long[] {1, 10_000, 1L << 40}) {
      List<KuduScanToken> tokens = Cases.client.newScanTokenBuilder(table).setSplitSizeBytes(bytes).build();
      Cases.holds(tokens.size() >= 4, tokens.size() + " tokens of four tablets");
      if (tokens.size() <= 40) {
        Cases.same(Tables.between(0, ROWS), found(tokens));
        continue;
      }
      List<Long> ids = new ArrayList<>();
      for (KuduScanToken token : tokens) {
        ids.addAll(Tables.ids(KuduScanToken.deserializeIntoScanner(token.serialize(), Cases.client)));
      }
      Cases.same(Tables.between(0, ROWS), ids.stream().sorted().toList());
    }
  }
}
