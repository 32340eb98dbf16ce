import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Rolls a group from the classic to the consumer protocol and back, member by member, and prints
 * after each step how many partitions each member reads; at the end how often each record was read.
 */
public class GroupRoll {
    static final int PARTITIONS = 4;
    static final long MILLIS_MAX = 40_000;
    static final Map<String, Integer> reads = new ConcurrentHashMap<>();
    static String bootstrap;

    static class Member extends Thread {
        final KafkaConsumer<String, String> consumer;
        volatile boolean isStopped;
        volatile Set<TopicPartition> assigned = Set.of();

        Member(String name, String protocol) {
            super(name);
            Properties settings = new Properties();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("group.id", "roll");
            settings.put("client.id", name);
            settings.put("group.protocol", protocol);
            settings.put("auto.offset.reset", "earliest");
            settings.put("key.deserializer", StringDeserializer.class.getName());
            settings.put("value.deserializer", StringDeserializer.class.getName());
            if (protocol.equals("classic")) {
                settings.put("heartbeat.interval.ms", "500");
                settings.put("partition.assignment.strategy",
                    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
            }
            consumer = new KafkaConsumer<>(settings);
            if (name.endsWith("by-regex")) {
                consumer.subscribe(new SubscriptionPattern("rol.*"));
            } else {
                consumer.subscribe(List.of("rolled"));
            }
            start();
        }

        @Override
        public void run() {
            while (!isStopped) {
                consumer.poll(Duration.ofMillis(100)).forEach(
                    record -> reads.merge(record.value(), 1, Integer::sum));
                assigned = Set.copyOf(consumer.assignment());
            }
            consumer.close();
        }

        void leave() throws InterruptedException {
            isStopped = true;
            join();
        }
    }

    static void settle(String step, Member... members) throws InterruptedException {
        long end = System.currentTimeMillis() + MILLIS_MAX;
        boolean isEven = false;
        while (!isEven && System.currentTimeMillis() < end) {
            Thread.sleep(50);
            Set<TopicPartition> all = new HashSet<>();
            int count = 0;
            isEven = true;
            for (Member member : members) {
                all.addAll(member.assigned);
                count += member.assigned.size();
                isEven &= member.assigned.size() >= PARTITIONS / members.length;
            }
            isEven &= all.size() == PARTITIONS && count == PARTITIONS;
        }
        System.out.println(step + " " + (isEven ? "even" : "NOT EVEN"));
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        Member first = new Member("first", "classic");
        Member second = new Member("second", "classic");
        settle("classic", first, second);
        Member third = new Member("third", "consumer");
        settle("upgraded", first, second, third);
        first.leave();
        Member fourth = new Member("fourth-by-regex", "consumer");
        settle("mixed", second, third, fourth);
        second.leave();
        settle("consumer", third, fourth);
        Member fifth = new Member("fifth", "classic");
        settle("back", third, fourth, fifth);
        third.leave();
        fourth.leave();
        settle("downgraded", fifth);
        Member sixth = new Member("sixth", "classic");
        settle("classic", fifth, sixth);
        fifth.leave();
        sixth.leave();
        Map<Integer, Integer> histogram = new TreeMap<>();
        reads.values().forEach(count -> histogram.merge(count, 1, Integer::sum));
        System.out.println("reads " + histogram);
    }
}
