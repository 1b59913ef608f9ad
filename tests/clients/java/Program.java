import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.List;
import java.util.Objects;

/**
 * What the programs of all Java clients share. A program reads a name `Class.method` from each line of the input, and answers
 * with what went wrong, if something did, and a line `passed` or `failed`. One process runs many cases, since starting it
 * takes longer than most of them.
 */
abstract class Program {
  static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

  static void runCases() throws IOException {
    for (String name; (name = INPUT.readLine()) != null; ) {
      System.out.println(passes(name) ? "passed" : "failed");
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
}
