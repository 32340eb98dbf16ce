import java.util.List;
import java.util.Map;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;

/** Confluent's Java client, as Flink ships it: Avro, references, levels, modes and deletions. */
public final class RegistryClient {
    private static void check(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    private interface Call {
        void run() throws Exception;
    }

    private static void refused(int code, Call call) throws Exception {
        try {
            call.run();
        } catch (RestClientException e) {
            check(e.getErrorCode() == code, "error code " + e.getErrorCode() + ", not " + code);
            return;
        }
        throw new AssertionError("not refused with " + code);
    }

    public static void main(String[] args) throws Exception {
        var client = new CachedSchemaRegistryClient(List.of(args[0]), 100, Map.of());
        var user = new AvroSchema(
            "{\"type\":\"record\",\"name\":\"User\",\"fields\":[{\"name\":\"id\",\"type\":\"int\"}]}");
        var more = new AvroSchema(
            "{\"type\":\"record\",\"name\":\"User\",\"fields\":[{\"name\":\"id\",\"type\":\"int\"},"
                + "{\"name\":\"note\",\"type\":\"string\",\"default\":\"\"}]}");
        var bad = new AvroSchema(
            "{\"type\":\"record\",\"name\":\"User\",\"fields\":[{\"name\":\"x\",\"type\":\"string\"}]}");
        int id = client.register("java-value", user);
        check(client.register("java-value", user) == id, "same id");
        check(client.getId("java-value", user) == id, "id");
        check(client.getVersion("java-value", user) == 1, "version");
        int second = client.register("java-value", more);
        check(second > id, "next id");
        check(client.getAllVersions("java-value").equals(List.of(1, 2)), "versions");
        check(client.getLatestSchemaMetadata("java-value").getId() == second, "latest");
        check(client.getSchemaMetadata("java-value", 1).getId() == id, "metadata");
        check(client.getSchemaById(id).canonicalString().equals(user.canonicalString()), "by id");
        check(client.getAllSubjectsById(id).contains("java-value"), "subjects");
        check(client.getAllSubjects().contains("java-value"), "all subjects");
        check(!client.testCompatibility("java-value", bad), "incompatible");
        check(!client.testCompatibilityVerbose("java-value", bad).isEmpty(), "reasons");
        refused(409, () -> client.register("java-value", bad));
        refused(40401, () -> client.getLatestSchemaMetadata("nowhere"));
        refused(40402, () -> client.getSchemaMetadata("java-value", 9));

        check(client.updateCompatibility("java-value", "NONE").equals("NONE"), "set level");
        check(client.getCompatibility("java-value").equals("NONE"), "level");
        client.deleteCompatibility("java-value");
        check(client.setMode("READONLY", "java-value").equals("READONLY"), "set mode");
        refused(42205, () -> client.deleteSchemaVersion("java-value", "1"));
        client.deleteMode("java-value");
        check(client.getMode().equals("READWRITE"), "mode");

        var order = new AvroSchema(
            "{\"type\":\"record\",\"name\":\"Order\",\"fields\":[{\"name\":\"u\",\"type\":\"User\"}]}",
            List.of(new SchemaReference("User", "java-value", 1)),
            Map.of("User", user.canonicalString()), null);
        int referring = client.register("java-order", order);
        check(client.getSchemaById(referring).references().size() == 1, "reference");
        refused(42206, () -> client.deleteSchemaVersion("java-value", "1"));
        check(client.deleteSubject("java-order").equals(List.of(1)), "soft deletion");
        check(client.deleteSubject("java-order", true).equals(List.of(1)), "permanent deletion");
        System.out.println("all passed");
        System.exit(0);
    }
}
