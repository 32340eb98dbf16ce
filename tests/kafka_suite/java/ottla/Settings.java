package ottla;

import org.apache.kafka.common.config.types.Password;

import java.util.Collection;
import java.util.stream.Collectors;

/** Values of settings as text. */
public final class Settings {
    private Settings() {
    }

    public static String text(Object value) {
        if (value instanceof Password password) return password.value();
        if (value instanceof Class<?> type) return type.getName();
        if (value instanceof Collection<?> values) {
            return values.stream().map(Settings::text).collect(Collectors.joining(","));
        }
        return String.valueOf(value);
    }
}
