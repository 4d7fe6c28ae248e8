import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

/** The assertions, which the families inherit, and the report: one line per family. Knows neither Jedis nor Lettuce. */
class Check {
    interface Code {
        void run() throws Throwable;
    }

    /** A hanging family fails with the place where it hangs. */
    private static final long FAMILY_MS = 120_000;

    private static Set<String> wanted = Set.of();
    private static int passed;
    private static int failed;

    Check() {}

    /** Runs only the named families; without names, all. */
    static void only(String[] names) {
        wanted = Set.of(names);
    }

    static void family(String name, Code code) {
        if (!wanted.isEmpty() && !wanted.contains(name)) {
            return;
        }
        long start = System.nanoTime();
        Throwable[] thrown = new Throwable[1];
        Thread thread = new Thread(() -> {
            try {
                code.run();
            } catch (Throwable t) {
                thrown[0] = t;
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
        try {
            thread.join(FAMILY_MS);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
        if (thread.isAlive()) {
            AssertionError hung = new AssertionError("still running after " + FAMILY_MS / 1000 + " s");
            hung.setStackTrace(thread.getStackTrace());
            thrown[0] = hung;
        }
        if (thrown[0] == null) {
            passed++;
            System.out.printf("%s: ok, %d ms%n", name, (System.nanoTime() - start) / 1_000_000);
        } else {
            failed++;
            System.out.println("FAIL " + name + ": " + place(thrown[0]) + ": " + thrown[0]);
        }
    }

    /** Ends the process, because clients keep threads running. */
    static void exit() {
        System.out.println("passed " + passed + ", failed " + failed);
        System.out.flush();
        Runtime.getRuntime().halt(failed == 0 ? 0 : 1);
    }

    /** The nearest line of the programs' own code, which is in no package. */
    private static String place(Throwable t) {
        List<StackTraceElement> frames = new ArrayList<>(Arrays.asList(t.getStackTrace()));
        for (Throwable cause = t.getCause(); cause != null; cause = cause.getCause()) {
            frames.addAll(Arrays.asList(cause.getStackTrace()));
        }
        for (StackTraceElement frame : frames) {
            if (!frame.getClassName().contains(".") && !frame.getClassName().startsWith("Check")) {
                return frame.getFileName() + ":" + frame.getLineNumber();
            }
        }
        return "?";
    }

    static void eq(Object expected, Object actual) {
        if (!same(expected, actual)) {
            throw new AssertionError("expected " + show(expected) + ", got " + show(actual));
        }
    }

    private static boolean same(Object a, Object b) {
        if (a instanceof byte[] x && b instanceof byte[] y) {
            return Arrays.equals(x, y);
        }
        if (integral(a) && integral(b)) {
            return ((Number) a).longValue() == ((Number) b).longValue();
        }
        if (a instanceof List<?> x && b instanceof List<?> y && x.size() == y.size()) {
            for (int i = 0; i < x.size(); i++) {
                if (!same(x.get(i), y.get(i))) {
                    return false;
                }
            }
            return true;
        }
        return Objects.equals(a, b);
    }

    private static boolean integral(Object o) {
        return o instanceof Long || o instanceof Integer;
    }

    private static String show(Object o) {
        return o instanceof byte[] b ? "bytes " + Arrays.toString(b) : String.valueOf(o);
    }

    static void yes(boolean held, Object... facts) {
        if (!held) {
            throw new AssertionError("does not hold" + (facts.length == 0 ? "" : ": " + Arrays.toString(facts)));
        }
    }

    static void near(double expected, double actual, double tolerance) {
        if (!(Math.abs(expected - actual) <= tolerance)) {
            throw new AssertionError("expected about " + expected + ", got " + actual);
        }
    }

    /** Asserts that `code` throws a `type` whose message contains `text`. */
    static <T extends Throwable> T fails(Class<T> type, String text, Code code) {
        try {
            code.run();
        } catch (Throwable t) {
            if (type.isInstance(t) && String.valueOf(t.getMessage()).contains(text)) {
                return type.cast(t);
            }
            throw new AssertionError("expected " + type.getSimpleName() + " with '" + text + "', got " + t, t);
        }
        throw new AssertionError("expected " + type.getSimpleName() + " with '" + text + "', got none");
    }

    interface Question {
        boolean holds() throws Exception;
    }

    /** Waits until the answer is true, for at most 60 s. */
    static void soon(Question question) throws Exception {
        for (int i = 0; i < 12_000; i++) {
            if (question.holds()) {
                return;
            }
            Thread.sleep(5);
        }
        throw new AssertionError("not so within 60 s");
    }

    static Map<String, String> map(String... pairs) {
        Map<String, String> map = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            map.put(pairs[i], pairs[i + 1]);
        }
        return map;
    }

    @SafeVarargs
    static <T> Set<T> set(T... members) {
        return new HashSet<>(Arrays.asList(members));
    }

    /** Like List.of, with nulls. */
    @SafeVarargs
    static <T> List<T> list(T... members) {
        return Arrays.asList(members);
    }

    static String env(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? otherwise : value;
    }
}
