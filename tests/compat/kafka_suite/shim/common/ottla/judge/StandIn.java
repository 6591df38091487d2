package ottla.judge;

import java.util.HashMap;
import java.util.Map;
import org.mockito.Mockito;
import org.mockito.stubbing.Answer;

/** Objects in place of the broker's own, which live in another process: they answer the calls that a test needs, and refuse others. */
public final class StandIn {
    public interface Call {
        Object with(Object[] arguments) throws Throwable;
    }

    /** The calls that a stand-in answers, by method name. */
    public static final class Calls {
        private final Map<String, Call> byName = new HashMap<>();

        public Calls on(String method, Call call) {
            byName.put(method, call);
            return this;
        }

        public Calls value(String method, Object value) {
            return on(method, arguments -> value);
        }

        public <T> T as(Class<T> type) {
            Answer<Object> answer = invocation -> {
                String name = invocation.getMethod().getName();
                Call call = byName.get(name);
                if (call != null) return call.with(invocation.getArguments());
                if (name.contains("$default$")) return invocation.callRealMethod();
                if (name.equals("toString") || name.equals("hashCode") || name.equals("equals"))
                    return Mockito.RETURNS_DEFAULTS.answer(invocation);
                throw unreachable(type.getSimpleName() + "." + name);
            };
            return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(answer));
        }
    }

    private StandIn() {}

    public static Calls calls() {
        return new Calls();
    }

    public static UnsupportedOperationException unreachable(String what) {
        return new UnsupportedOperationException("JVM object: the test reaches for " + what + ", and Ottla is another process");
    }

    /** The first of these classes that this version of Kafka has. */
    @SuppressWarnings("unchecked")
    public static <T> Class<T> oneOf(String... names) {
        for (String name : names) {
            try {
                return (Class<T>) Class.forName(name);
            } catch (ClassNotFoundException ignored) {
                continue;
            }
        }
        throw new IllegalStateException("none of these classes exists: " + String.join(", ", names));
    }
}
