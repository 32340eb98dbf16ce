package ottla;

import org.mockito.MockMakers;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;
import org.mockito.stubbing.Answer;

import java.lang.reflect.Modifier;
import java.util.Collection;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;

/**
 * Objects of Kafka's server classes without a server behind them.
 *
 * A method that the table names answers by it. Any other one reaches into the JVM broker: it prints a
 * line that starts with {@link #MARK} and returns an empty value, so that a failure after such a line
 * says nothing about Ottla.
 */
final class StandIn {
    static final String MARK = "REACHES-INTO-THE-BROKER";

    private StandIn() {
    }

    static <T> T of(Class<T> type, Map<String, Function<Object[], Object>> answers) {
        String maker = Modifier.isFinal(type.getModifiers()) ? MockMakers.INLINE : MockMakers.SUBCLASS;
        return Mockito.mock(type, Mockito.withSettings().mockMaker(maker).stubOnly().defaultAnswer(new Table(answers)));
    }

    private static final class Table implements Answer<Object> {
        private final Map<String, Function<Object[], Object>> answers;
        private final Map<String, Object> children = new ConcurrentHashMap<>();

        Table(Map<String, Function<Object[], Object>> answers) {
            this.answers = answers;
        }

        @Override
        public Object answer(InvocationOnMock call) throws Throwable {
            String name = call.getMethod().getName();
            Function<Object[], Object> answer = answers.get(name);
            if (answer != null) return answer.apply(call.getArguments());
            Class<?> result = call.getMethod().getReturnType();
            switch (name) {
                case "toString": return "stand-in for " + call.getMethod().getDeclaringClass().getSimpleName();
                case "hashCode": return System.identityHashCode(call.getMock());
                case "equals": return call.getMock() == call.getArgument(0);
                default:
            }
            if (result == void.class) return null;
            System.err.println(MARK + " " + call.getMethod().getDeclaringClass().getSimpleName() + "." + name);
            return empty(call, result, name);
        }

        private Object empty(InvocationOnMock call, Class<?> result, String name) throws Throwable {
            if (result == scala.Option.class) return scala.Option.empty();
            if (scala.collection.Map.class.isAssignableFrom(result)) return scala.collection.immutable.Map$.MODULE$.empty();
            if (scala.collection.Iterable.class.isAssignableFrom(result)) return scala.collection.immutable.Nil$.MODULE$;
            boolean hasDefault = result.isPrimitive() || result == String.class || result == Optional.class
                || result == Map.class || Collection.class.isAssignableFrom(result);
            if (hasDefault) return Mockito.RETURNS_DEFAULTS.answer(call);
            return children.computeIfAbsent(name, key -> of(result, Map.of()));
        }
    }
}
