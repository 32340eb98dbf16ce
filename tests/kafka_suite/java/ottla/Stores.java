package ottla;

import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** Converts the JKS stores of Kafka's tests to PKCS12, as an operator of a node has to. */
public final class Stores {
    private Stores() {
    }

    public static void convert(Map<String, String> settings) throws IOException {
        for (String kind : List.of("keystore", "truststore")) {
            String suffix = "ssl." + kind + ".location";
            for (String key : settings.keySet().stream().filter(key -> key.endsWith(suffix)).toList()) {
                convert(settings, key.substring(0, key.length() - ".location".length()));
            }
        }
    }

    private static void convert(Map<String, String> settings, String prefix) throws IOException {
        if (!settings.getOrDefault(prefix + ".type", "JKS").equals("JKS")) return;
        String password = settings.get(prefix + ".password");
        String keyPassword = settings.getOrDefault(prefix.replace("keystore", "key") + ".password", password);
        File converted = File.createTempFile("store", ".p12");
        converted.deleteOnExit();
        try (InputStream from = new FileInputStream(settings.get(prefix + ".location"));
                OutputStream to = new FileOutputStream(converted)) {
            KeyStore source = KeyStore.getInstance("JKS");
            source.load(from, password.toCharArray());
            KeyStore target = KeyStore.getInstance("PKCS12");
            target.load(null, null);
            for (String alias : Collections.list(source.aliases())) {
                if (source.isKeyEntry(alias)) {
                    target.setKeyEntry(alias, source.getKey(alias, keyPassword.toCharArray()),
                        password.toCharArray(), source.getCertificateChain(alias));
                } else {
                    target.setCertificateEntry(alias, source.getCertificate(alias));
                }
            }
            target.store(to, password.toCharArray());
        } catch (GeneralSecurityException error) {
            throw new IOException(error);
        }
        settings.put(prefix + ".location", converted.getPath());
        settings.put(prefix + ".type", "PKCS12");
        if (prefix.endsWith("keystore")) settings.put(prefix.replace("keystore", "key") + ".password", password);
    }
}
