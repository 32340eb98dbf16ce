package ottla;

import kafka.server.ClientRequestQuotaManager;
import kafka.server.QuotaFactory.QuotaManagers;
import kafka.server.ReplicationQuotaManager;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;

/** The quotas of clients, asked of a node. What was consumed of them stays inside the node. */
final class Quotas {
    private static final String DEFAULT = "<default>";
    private static final String NONE = "";

    private Quotas() {
    }

    static QuotaManagers managers(NodeView node) {
        return new QuotaManagers(
            StandIn.of(ClientQuotaManager.class, quota(node, "consumer_byte_rate")),
            StandIn.of(ClientQuotaManager.class, quota(node, "producer_byte_rate")),
            StandIn.of(ClientRequestQuotaManager.class, quota(node, "request_percentage")),
            StandIn.of(ControllerMutationQuotaManager.class, quota(node, "controller_mutation_rate")),
            StandIn.of(ReplicationQuotaManager.class, Map.of()),
            StandIn.of(ReplicationQuotaManager.class, Map.of()),
            StandIn.of(ReplicationQuotaManager.class, Map.of()),
            Optional.empty());
    }

    private static Map<String, Function<Object[], Object>> quota(NodeView node, String key) {
        return Map.of("quota", call -> {
            String user = call[0] instanceof KafkaPrincipal principal ? principal.getName() : (String) call[0];
            return find(values(node, key), user, (String) call[1]);
        });
    }

    /** Return the values of a key by user and client id. */
    private static Map<String, Double> values(NodeView node, String key) {
        Map<String, Double> values = new HashMap<>();
        try (Admin admin = node.admin()) {
            admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach((entity, quotas) -> {
                Map<String, String> names = entity.entries();
                if (quotas.containsKey(key) && !names.containsKey("ip")) {
                    values.put(name(names, "user") + "/" + name(names, "client-id"), quotas.get(key));
                }
            });
        } catch (ExecutionException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
        return values;
    }

    private static String name(Map<String, String> names, String kind) {
        if (!names.containsKey(kind)) return NONE;
        return names.get(kind) == null ? DEFAULT : names.get(kind);
    }

    /** Kafka's order: users before clients, names before defaults. */
    private static Quota find(Map<String, Double> values, String user, String client) {
        for (String first : Arrays.asList(user, DEFAULT, NONE)) {
            for (String second : Arrays.asList(client, DEFAULT, NONE)) {
                Double value = values.get(first + "/" + second);
                if (value != null) return Quota.upperBound(value);
            }
        }
        return Quota.upperBound(Long.MAX_VALUE);
    }
}
