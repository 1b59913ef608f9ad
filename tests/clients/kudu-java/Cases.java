import java.io.IOException;
import org.apache.kudu.client.AsyncKuduClient.EncryptionPolicy;
import org.apache.kudu.client.KuduClient;
import org.apache.kudu.client.KuduException;

/**
 * Runs cases with Kudu's Java client against the master whose address is the argument, encrypting as a second one says
 * (`REQUIRED`).
 */
public final class Cases extends Program {
  private static String master;
  private static EncryptionPolicy encryption = EncryptionPolicy.OPTIONAL;
  /** For all cases that do not want one of their own. */
  static KuduClient client;

  public static void main(String[] arguments) throws IOException {
    master = arguments[0];
    if (arguments.length > 1) {
      encryption = EncryptionPolicy.valueOf(arguments[1]);
    }
    try (KuduClient shared = connect()) {
      client = shared;
      runCases();
    }
  }

  static KuduClient connect() {
    return new KuduClient.KuduClientBuilder(master).encryptionPolicy(encryption).build();
  }

  /** Has whoever started this process do something with the server, and waits until it is done. */
  static synchronized void ask(String what) {
    System.out.println("ask " + what);
    try {
      same("done", INPUT.readLine());
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  /** What the client throws. */
  static KuduException fails(Action action) throws Exception {
    try {
      action.run();
    } catch (KuduException e) {
      return e;
    } catch (RuntimeException e) {
      // Iterators of scanners cannot throw what the client does.
      if (e.getCause() instanceof KuduException cause) {
        return cause;
      }
      throw e;
    }
    throw new AssertionError("nothing was thrown");
  }
}
