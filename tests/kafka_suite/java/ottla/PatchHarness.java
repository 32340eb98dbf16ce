package ottla;

import net.bytebuddy.ByteBuddy;
import net.bytebuddy.description.type.TypeDescription;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.implementation.MethodDelegation;
import net.bytebuddy.matcher.ElementMatchers;
import net.bytebuddy.pool.TypePool;

import java.io.File;

/** Writes a QuorumTestHarness whose newKRaftQuorum starts Ottla, into the directory of the arguments. */
public final class PatchHarness {
    private PatchHarness() {
    }

    public static void main(String[] arguments) throws Exception {
        ClassFileLocator classes = ClassFileLocator.ForClassLoader.ofSystemLoader();
        TypeDescription harness = TypePool.Default.of(classes).describe("kafka.server.QuorumTestHarness").resolve();
        new ByteBuddy().redefine(harness, classes)
            .method(ElementMatchers.named("newKRaftQuorum").and(ElementMatchers.takesArguments(2)))
            .intercept(MethodDelegation.to(HarnessQuorum.class))
            .make().saveIn(new File(arguments[0]));
    }
}
