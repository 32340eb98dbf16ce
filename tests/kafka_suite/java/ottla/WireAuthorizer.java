package ottla;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DeleteAclsResult;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.authorizer.AuthorizerServerInfo;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.function.Supplier;

/** Reads and changes the ACLs of a node over its listener. It decides nothing: nodes do. */
final class WireAuthorizer implements Authorizer {
    private final Supplier<Admin> admins;

    private WireAuthorizer(Supplier<Admin> admins) {
        this.admins = admins;
    }

    static scala.Option<Plugin<Authorizer>> plugin(Supplier<Admin> admins) {
        return scala.Option.apply(
            Plugin.wrapInstance(new WireAuthorizer(admins), new Metrics(), "authorizer.class.name"));
    }

    @Override
    public List<? extends CompletionStage<AclCreateResult>> createAcls(
            AuthorizableRequestContext context, List<AclBinding> bindings) {
        List<CompletionStage<AclCreateResult>> results = new ArrayList<>();
        try (Admin admin = admins.get()) {
            for (var future : admin.createAcls(bindings).values().values()) {
                results.add(CompletableFuture.completedFuture(created(future)));
            }
        }
        return results;
    }

    private static AclCreateResult created(org.apache.kafka.common.KafkaFuture<Void> future) {
        try {
            future.get();
            return AclCreateResult.SUCCESS;
        } catch (ExecutionException | InterruptedException error) {
            return new AclCreateResult((ApiException) error.getCause());
        }
    }

    @Override
    public List<? extends CompletionStage<AclDeleteResult>> deleteAcls(
            AuthorizableRequestContext context, List<AclBindingFilter> filters) {
        List<CompletionStage<AclDeleteResult>> results = new ArrayList<>();
        try (Admin admin = admins.get()) {
            for (var future : admin.deleteAcls(filters).values().values()) {
                results.add(CompletableFuture.completedFuture(deleted(future)));
            }
        }
        return results;
    }

    private static AclDeleteResult deleted(
            org.apache.kafka.common.KafkaFuture<DeleteAclsResult.FilterResults> future) {
        try {
            return new AclDeleteResult(future.get().values().stream()
                .map(result -> new AclDeleteResult.AclBindingDeleteResult(result.binding(), result.exception())).toList());
        } catch (ExecutionException | InterruptedException error) {
            return new AclDeleteResult((ApiException) error.getCause());
        }
    }

    @Override
    public Iterable<AclBinding> acls(AclBindingFilter filter) {
        try (Admin admin = admins.get()) {
            return admin.describeAcls(filter).values().get();
        } catch (ExecutionException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public List<AuthorizationResult> authorize(AuthorizableRequestContext context, List<Action> actions) {
        throw new UnsupportedOperationException(StandIn.MARK);
    }

    @Override public Map<Endpoint, ? extends CompletionStage<Void>> start(AuthorizerServerInfo info) { return Map.of(); }
    @Override public void configure(Map<String, ?> settings) { }
    @Override public void close() { }
}
