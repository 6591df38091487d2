import java.time.Duration;
import java.util.ArrayList;
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
import org.apache.kafka.common.errors.ProducerFencedException;

/**
 * Copies a topic to another, exactly once: bootstrap, source, sink, id (of group and transactions), records to copy, group protocol
 * ("" where the client knows none). Every third transaction is aborted and its input read again.
 */
public class Copy {
    public static void main(String[] args) {
        String bootstrap = args[0], source = args[1], sink = args[2], id = args[3];
        int wanted = Integer.parseInt(args[4]);
        Properties shared = new Properties();
        shared.put("bootstrap.servers", bootstrap);
        Properties reading = new Properties();
        reading.putAll(shared);
        reading.put("group.id", id);
        if (!args[5].isEmpty()) reading.put("group.protocol", args[5]);
        reading.put("isolation.level", "read_committed");
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", "false");
        reading.put("max.poll.records", "23");
        reading.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        reading.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        Properties writing = new Properties();
        writing.putAll(shared);
        writing.put("transactional.id", id);
        writing.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        writing.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        int done = 0, transactions = 0, aborted = 0;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reading);
                KafkaProducer<String, String> producer = new KafkaProducer<>(writing)) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            long deadline = System.currentTimeMillis() + 60_000;
            while (done < wanted) {
                if (System.currentTimeMillis() > deadline) throw new RuntimeException("only " + done + " copied in time");
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofSeconds(1));
                if (records.isEmpty()) continue;
                transactions++;
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(sink, record.partition(), null, record.value()));
                    offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (transactions % 3 == 2) {
                    producer.flush();
                    producer.abortTransaction();
                    aborted++;
                    Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
                    for (TopicPartition partition : consumer.assignment()) {
                        OffsetAndMetadata at = committed.get(partition);
                        if (at == null) consumer.seekToBeginning(List.of(partition));
                        else consumer.seek(partition, at.offset());
                    }
                } else {
                    producer.commitTransaction();
                    done += records.count();
                }
            }
            // A second producer of the same id, and the first can do no more.
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(sink, 0, null, "never seen")).get();
            try (KafkaProducer<String, String> successor = new KafkaProducer<>(writing)) {
                successor.initTransactions();
                try {
                    producer.commitTransaction();
                    System.out.println("not fenced");
                } catch (ProducerFencedException fenced) {
                    System.out.println("fenced");
                }
                successor.beginTransaction();
                successor.commitTransaction();
            }
        } catch (ProducerFencedException closing) {
            // Closing a fenced producer may say so again.
        } catch (Exception failure) {
            failure.printStackTrace();
            System.exit(1);
        }
        System.out.println("copied " + done + " in " + transactions + " transactions, " + aborted + " aborted");
    }
}
