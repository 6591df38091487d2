import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * Copies a topic to another, exactly once, until it is killed: bootstrap, source, sink, id (of group and transactions).
 * A transaction that cannot be committed is aborted and its input read again; a producer that cannot go on ends the process with
 * 3, and somebody starts it again.
 */
public class Relay {
    public static void main(String[] args) {
        String source = args[1], sink = args[2];
        Properties shared = new Properties();
        shared.put("bootstrap.servers", args[0]);
        shared.put("reconnect.backoff.max.ms", "200");
        Properties reading = new Properties();
        reading.putAll(shared);
        reading.put("group.id", args[3]);
        reading.put("isolation.level", "read_committed");
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", "false");
        reading.put("max.poll.records", "40");
        reading.put("session.timeout.ms", "2000");
        reading.put("heartbeat.interval.ms", "300");
        reading.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        reading.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        Properties writing = new Properties();
        writing.putAll(shared);
        writing.put("transactional.id", args[3]);
        writing.put("transaction.timeout.ms", "4000");
        writing.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        writing.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reading);
        KafkaProducer<String, String> producer = new KafkaProducer<>(writing);
        try {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) continue;
                try {
                    producer.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    for (ConsumerRecord<String, String> record : records) {
                        producer.send(new ProducerRecord<>(sink, record.partition(), null, record.value()));
                        offsets.put(new TopicPartition(source, record.partition()), new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    commit(producer);
                } catch (KafkaException failure) {
                    System.out.println("aborts: " + failure);
                    producer.abortTransaction(); // throws if it cannot go on
                    Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
                    for (TopicPartition partition : consumer.assignment()) {
                        OffsetAndMetadata at = committed.get(partition);
                        if (at == null) consumer.seekToBeginning(List.of(partition));
                        else consumer.seek(partition, at.offset());
                    }
                }
            }
        } catch (KafkaException failure) {
            System.out.println("gives up: " + failure);
            System.out.flush();
            Runtime.getRuntime().halt(3); // as if it were killed: nothing is closed in order
        }
    }

    /** Again until it is known whether the transaction is committed. */
    private static void commit(KafkaProducer<String, String> producer) {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException unheard) {
                System.out.println("commits again");
            }
        }
    }
}
