import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.List;
import java.util.Objects;
import org.apache.kudu.client.AsyncKuduClient.EncryptionPolicy;
import org.apache.kudu.client.KuduClient;
import org.apache.kudu.client.KuduException;

/**
 * Runs cases with Kudu's Java client against the master whose address is the argument, encrypting as a second one says (`REQUIRED`). Reads a name `Class.method` from
 * each line of the input, and answers with what went wrong, if something did, and a line `passed` or `failed`. One
 * process runs many cases, since starting it takes longer than most of them.
 */
public final class Cases {
  private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));
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
      for (String name; (name = INPUT.readLine()) != null; ) {
        System.out.println(passes(name) ? "passed" : "failed");
      }
    }
  }

  private static boolean passes(String name) {
    String[] parts = name.split("\\.");
    try {
      Class.forName(parts[0]).getMethod(parts[1]).invoke(null);
      return true;
    } catch (InvocationTargetException failure) {
      tell(failure.getCause());
    } catch (ReflectiveOperationException unknown) {
      tell(unknown);
    }
    return false;
  }

  /** The causes, and where in the cases: what the client calls has dozens of lines. */
  private static void tell(Throwable failure) {
    System.out.println(failure);
    for (StackTraceElement at : failure.getStackTrace()) {
      if (!at.getClassName().contains(".")) {
        System.out.println("  at " + at);
      }
    }
    if (failure.getCause() != null) {
      tell(failure.getCause());
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

  static void same(Object expected, Object actual) {
    if (Objects.equals(expected, actual)) {
      return;
    }
    if (expected instanceof List<?> wanted && actual instanceof List<?> got) {
      int same = 0;
      while (same < wanted.size() && same < got.size() && wanted.get(same).equals(got.get(same))) {
        same++;
      }
      int end = same + 10;
      throw new AssertionError(
          String.format(
              "of %d and %d items, %d are as expected; then %s is expected, not %s",
              wanted.size(), got.size(), same, part(wanted, same, end), part(got, same, end)));
    }
    throw new AssertionError("expected " + expected + ", got " + actual);
  }

  private static List<?> part(List<?> list, int from, int to) {
    return list.subList(from, Math.min(to, list.size()));
  }

  static void holds(boolean condition, Object told) {
    if (!condition) {
      throw new AssertionError(String.valueOf(told));
    }
  }

  interface Action {
    void run() throws Exception;
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
