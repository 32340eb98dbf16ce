// Asks Kafka's controller what becomes of partitions: one case per line in, one record per line out.
//
// in:   replicas isr leader adding removing elr lastKnownElr recovering alive minIsr elrEnabled
//       election wantedIsr wantedReplicas wantedAdding wantedRemoving level lost
// out:  isr leader replicas adding removing elr lastKnownElr recovery directories, or "none"
//
// Lists are comma-separated, "-" is the empty one, "null" none at all.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

public class PartitionChanges {
    static List<Integer> list(String text) {
        if (text.equals("-")) return new ArrayList<>();
        return Arrays.stream(text.split(",")).map(Integer::parseInt).collect(Collectors.toList());
    }

    static int[] array(String text) {
        return list(text).stream().mapToInt(i -> i).toArray();
    }

    static String text(List<Integer> values) {
        if (values == null) return "null";
        if (values.isEmpty()) return "-";
        return values.stream().map(String::valueOf).collect(Collectors.joining(","));
    }

    static Uuid directory(int replica) {
        return new Uuid(9, replica);
    }

    static PartitionRegistration partition(String[] field) {
        int[] replicas = array(field[0]);
        return new PartitionRegistration.Builder()
            .setReplicas(replicas)
            .setDirectories(Arrays.stream(replicas).mapToObj(PartitionChanges::directory).toArray(Uuid[]::new))
            .setIsr(array(field[1]))
            .setLeader(Integer.parseInt(field[2]))
            .setAddingReplicas(array(field[3]))
            .setRemovingReplicas(array(field[4]))
            .setElr(array(field[5]))
            .setLastKnownElr(array(field[6]))
            .setLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(field[7])))
            .setLeaderEpoch(3)
            .setPartitionEpoch(7)
            .build();
    }

    static String answer(String[] field) {
        Set<Integer> alive = new HashSet<>(list(field[8]));
        PartitionChangeBuilder builder = new PartitionChangeBuilder(
            partition(field), new Uuid(5, 5), 0, alive::contains,
            MetadataVersion.fromFeatureLevel(Short.parseShort(field[16])), Integer.parseInt(field[9]));
        builder.setEligibleLeaderReplicasEnabled(field[10].equals("1"));
        builder.setElection(PartitionChangeBuilder.Election.valueOf(field[11]));
        builder.setDefaultDirProvider(PartitionChanges::directory);
        if (!field[12].equals("null")) builder.setTargetIsr(list(field[12]));
        if (!field[13].equals("null")) builder.setTargetReplicas(list(field[13]));
        if (!field[14].equals("null")) builder.setTargetAdding(list(field[14]));
        if (!field[15].equals("null")) builder.setTargetRemoving(list(field[15]));
        if (!field[17].equals("-1")) builder.setUncleanShutdownReplicas(list(field[17]));
        Optional<ApiMessageAndVersion> built = builder.build();
        if (built.isEmpty()) return "none";
        PartitionChangeRecord change = (PartitionChangeRecord) built.get().message();
        List<Integer> elr = change.eligibleLeaderReplicas();
        if (elr != null) {
            elr = new ArrayList<>(elr);
            Collections.sort(elr);
        }
        List<Integer> directories = change.directories() == null ? null : change.directories().stream()
            .map(id -> (int) id.getLeastSignificantBits()).collect(Collectors.toList());
        return String.join(" ", text(change.isr()), String.valueOf(change.leader()), text(change.replicas()),
            text(change.addingReplicas()), text(change.removingReplicas()), text(elr),
            text(change.lastKnownElr()), String.valueOf(change.leaderRecoveryState()), text(directories));
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(line.split(" ")));
        }
    }
}
