import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.ClusterOptions;
import com.couchbase.client.java.Collection;
import java.io.IOException;
import java.time.Duration;

/**
 * Runs cases with Couchbase's Java SDK, with its defaults: `Cases ADDRESS USER PASSWORD [SECONDS]`, of which the last is how
 * long it may take to come in.
 */
public final class Cases extends Program {
  /** Of what must be done some time. */
  static final Duration PATIENCE = Duration.ofMinutes(2);
  /** Of what the SDK tries again until its time is over. */
  static final Duration SHORT = Duration.ofSeconds(1);
  /** Of what is refused at once; the SDK's own limits are longer. */
  private static final Duration AT_ONCE = Duration.ofSeconds(10);

  static Cluster cluster;
  static Bucket bucket;
  /** Every case keeps keys of its own in it. */
  static Collection collection;

  private static String[] arguments;

  /** To the address in the arguments, as the user there. */
  static Cluster connect() {
    return Cluster.connect(
        "couchbase://" + arguments[0],
        ClusterOptions.clusterOptions(arguments[1], arguments[2])
            // The only defaults that are not kept, for machines that are busy with other things.
            .environment(
                env -> env.timeoutConfig(t -> t.connectTimeout(PATIENCE).kvTimeout(PATIENCE).kvDurableTimeout(PATIENCE))));
  }

  public static void main(String[] given) throws IOException {
    arguments = given;
    cluster = connect();
    bucket = cluster.bucket("default");
    bucket.waitUntilReady(given.length > 3 ? Duration.ofSeconds(Long.parseLong(given[3])) : PATIENCE);
    collection = bucket.defaultCollection();
    runCases();
    cluster.disconnect();
  }

  /** What is thrown, which is one of those expected. */
  static Exception fails(Action action, Class<?>... expected) {
    try {
      action.run();
    } catch (Exception thrown) {
      for (Class<?> one : expected) {
        if (one.isInstance(thrown)) {
          return thrown;
        }
      }
      throw new AssertionError("another error", thrown);
    }
    throw new AssertionError("nothing was thrown");
  }

  /** The same, of what must not wait for a timeout. */
  static Exception failsAtOnce(Action action, Class<?>... expected) {
    long began = System.nanoTime();
    Exception thrown = fails(action, expected);
    Duration took = Duration.ofNanos(System.nanoTime() - began);
    holds(took.compareTo(AT_ONCE) < 0, "refused after " + took);
    return thrown;
  }
}
