import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Reads, works and writes exactly once, in a process that may be killed anywhere.
 *
 * <pre>ExactlyOnce bootstrap group-protocol name history</pre>
 *
 * Reads "in" as a member of the group "work" and writes one value for each record to "out", with
 * its offsets, in transactions. Each event is in the file before the next thing is done, so that
 * what a killed process leaves behind is what it did. Goes on until it is killed.
 */
public class ExactlyOnce {
    static final int PARTITIONS = 2;
    static final int ABORTED_ONE_IN = 7;

    final FileOutputStream history;
    final String name;
    final KafkaConsumer<String, String> consumer;
    final KafkaProducer<String, String> producer;
    int number = 0;

    ExactlyOnce(String servers, String protocol, String id, FileOutputStream history) {
        this.history = history;
        this.name = id + "-" + System.nanoTime();
        Properties reading = new Properties();
        reading.put("bootstrap.servers", servers);
        reading.put("group.id", "work");
        reading.put("group.protocol", protocol);
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        reading.put("isolation.level", "read_committed");
        reading.put("max.poll.records", "20");
        reading.put("fetch.max.wait.ms", "50");
        if (protocol.equals("classic")) {
            reading.put("session.timeout.ms", "3000");
            reading.put("heartbeat.interval.ms", "300");
        }
        consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
        Properties writing = new Properties();
        writing.put("bootstrap.servers", servers);
        writing.put("transactional.id", id);
        writing.put("transaction.timeout.ms", "10000");
        producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
    }

    void run() {
        untilTold(producer::initTransactions);
        consumer.subscribe(List.of("in"));
        while (true) {
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            if (!records.isEmpty()) {
                transact(records);
            }
        }
    }

    void transact(List<ConsumerRecord<String, String>> records) {
        String txn = name + "-" + ++number;
        boolean isEnding = false;
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                send(txn, record);
                TopicPartition place = new TopicPartition("in", record.partition());
                ends.put(place, new OffsetAndMetadata(record.offset() + 1));
            }
            noteOffsets("invoke", txn, ends);
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            noteOffsets("ok", txn, ends);
            if (number % ABORTED_ONE_IN != 0) {
                isEnding = true;
                note("end", "invoke", "\"txn\":\"" + txn + "\",\"commit\":true");
                untilTold(producer::commitTransaction);
                note("end", "ok", "\"txn\":\"" + txn + "\",\"commit\":true");
                return;
            }
        } catch (KafkaException error) {
            System.out.println(txn + " " + error);
            if (isEnding) {
                note("end", "info", "\"txn\":\"" + txn + "\",\"commit\":true");
            }
        }
        // A producer that is of no use any more throws here, and a new one takes its place.
        note("end", "invoke", "\"txn\":\"" + txn + "\",\"commit\":false");
        untilTold(producer::abortTransaction);
        note("end", "ok", "\"txn\":\"" + txn + "\",\"commit\":false");
        rewind(records);
    }

    /** Read again what was not done. */
    void rewind(List<ConsumerRecord<String, String>> records) {
        Map<TopicPartition, Long> first = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            first.putIfAbsent(new TopicPartition("in", record.partition()), record.offset());
        }
        first.forEach((place, offset) -> {
            if (consumer.assignment().contains(place)) {
                consumer.seek(place, offset);
            }
        });
    }

    void send(String txn, ConsumerRecord<String, String> record) {
        String value = record.value() + "|" + txn;
        int partition = record.offset() % 2 == 0 ? record.partition() : number % PARTITIONS;
        String sent = "\"partition\":\"out-" + partition + "\",\"value\":\"" + value
            + "\",\"txn\":\"" + txn + "\"";
        note("send", "invoke", sent);
        producer.send(new ProducerRecord<>("out", partition, null, value), (metadata, error) -> {
            if (error == null) {
                note("send", "ok", sent + ",\"offset\":" + metadata.offset());
            } else {
                note("send", "info", sent);
            }
        });
    }

    void noteOffsets(String phase, String txn, Map<TopicPartition, OffsetAndMetadata> ends) {
        ends.forEach((place, end) -> note("commit_offset", phase,
            "\"group\":\"work\",\"partition\":\"" + place + "\",\"offset\":" + end.offset()
                + ",\"txn\":\"" + txn + "\""));
    }

    /** Asks again when there was no answer: nobody knows then whether it was done. */
    static void untilTold(Runnable ask) {
        while (true) {
            try {
                ask.run();
                return;
            } catch (TimeoutException error) {
                System.out.println("asked again: " + error);
            }
        }
    }

    void note(String kind, String phase, String fields) {
        String line = "{\"f\":\"" + kind + "\",\"time\":" + System.nanoTime() + ",\"process\":\""
            + name + "\",\"phase\":\"" + phase + "\"," + fields + "}\n";
        synchronized (history) {
            try {
                history.write(line.getBytes(StandardCharsets.UTF_8));
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }
    }

    void close() {
        producer.close(Duration.ZERO);
        consumer.close();
    }

    public static void main(String[] arguments) throws Exception {
        FileOutputStream history = new FileOutputStream(arguments[3], true);
        while (true) {
            ExactlyOnce worker = new ExactlyOnce(arguments[0], arguments[1], arguments[2], history);
            try {
                worker.run();
            } catch (KafkaException | IllegalStateException error) {
                System.out.println("begins anew: " + error);
            }
            worker.close();
        }
    }
}
