package ottla;

import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;

import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;

/** Puts the logins of the JVM's JAAS file into the settings of a node, which has no such file. */
final class Logins {
    private static final String UNSECURED = "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
        + "OAuthBearerUnsecuredValidatorCallbackHandler";

    private Logins() {
    }

    static void addFromJaas(Map<String, String> settings) {
        for (String listener : settings.get("listeners").split(",")) {
            String name = listener.substring(0, listener.indexOf(':'));
            String prefix = "listener.name." + name.toLowerCase(Locale.ROOT) + ".";
            if (!protocolOf(name, settings).startsWith("SASL_")) continue;
            String mechanisms = settings.getOrDefault(prefix + "sasl.enabled.mechanisms",
                settings.getOrDefault("sasl.enabled.mechanisms", "GSSAPI"));
            for (String mechanism : mechanisms.split(",")) {
                add(settings, prefix, name, mechanism.trim());
            }
        }
    }

    private static String protocolOf(String listener, Map<String, String> settings) {
        for (String row : settings.getOrDefault("listener.security.protocol.map", "").split(",")) {
            if (row.startsWith(listener + ":")) return row.substring(listener.length() + 1);
        }
        return listener;
    }

    private static void add(Map<String, String> settings, String prefix, String listener, String mechanism) {
        String login = prefix + mechanism.toLowerCase(Locale.ROOT) + ".";
        if (mechanism.equals("OAUTHBEARER")) {
            settings.putIfAbsent(login + "sasl.server.callback.handler.class", UNSECURED);
        }
        String text = jaas(listener.toLowerCase(Locale.ROOT) + ".KafkaServer", mechanism);
        if (text == null) text = jaas("KafkaServer", mechanism);
        if (text != null) settings.putIfAbsent(login + "sasl.jaas.config", text);
    }

    private static String jaas(String section, String mechanism) {
        AppConfigurationEntry[] entries;
        try {
            entries = Configuration.getConfiguration().getAppConfigurationEntry(section);
        } catch (SecurityException noFile) {
            return null;
        }
        if (entries == null) return null;
        for (AppConfigurationEntry entry : entries) {
            if (!entry.getLoginModuleName().endsWith(moduleOf(mechanism))) continue;
            String options = entry.getOptions().entrySet().stream()
                .map(option -> " " + option.getKey() + "=\"" + option.getValue() + "\"").collect(Collectors.joining());
            return entry.getLoginModuleName() + " required" + options + ";";
        }
        return null;
    }

    private static String moduleOf(String mechanism) {
        if (mechanism.startsWith("SCRAM")) return "ScramLoginModule";
        return switch (mechanism) {
            case "PLAIN" -> "PlainLoginModule";
            case "OAUTHBEARER" -> "OAuthBearerLoginModule";
            default -> "Krb5LoginModule";
        };
    }
}
