package ottla.judge;

import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/** The brokers of one test's cluster, and the ZooKeeper path they share. A broker that is the only one keeps its own metadata. */
public final class Quorum {
    private static final Map<Object, Quorum> BY_KEY = new IdentityHashMap<>();
    private static final AtomicInteger COUNT = new AtomicInteger();

    public final List<Ottla> brokers = new CopyOnWriteArrayList<>();
    private final Map<String, String> seed = new HashMap<>();
    private final String chroot = "/judge-" + ProcessHandle.current().pid() + "-" + COUNT.incrementAndGet();
    private String connect;

    /** The quorum of a harness: everything that it starts shares one object, `key`. */
    public static synchronized Quorum of(Object key) {
        return BY_KEY.computeIfAbsent(key, ignored -> new Quorum());
    }

    /** A quorum whose ZooKeeper the harness runs. */
    public static synchronized Quorum at(String connect) {
        Quorum found = BY_KEY.computeIfAbsent(connect.intern(), ignored -> new Quorum());
        found.connect = connect;
        return found;
    }

    /** The records that the cluster begins with. */
    public void begin(List<ApiMessageAndVersion> records) {
        seed.putAll(Seed.configs(records));
    }

    /** `zookeeper.connect`, or null for a broker alone. */
    synchronized String connect() {
        if (connect == null && (expected() > 1 || !seed.isEmpty())) {
            connect = System.getProperty("ottla.judge.zookeeper") + chroot;
            if (!seed.isEmpty()) Seed.write(connect, seed);
        }
        return connect;
    }

    /** How many brokers there will be. A harness that starts each as soon as it is made has the list of configurations. */
    private int expected() {
        if (Boolean.getBoolean("ottla.judge.cluster")) return Integer.MAX_VALUE;
        try {
            Object configs = Judge.instance.getClass().getMethod("instanceConfigs").invoke(Judge.instance);
            if (configs instanceof scala.collection.Seq<?> seq) return Math.max(seq.size(), brokers.size());
        } catch (NoSuchMethodException ownBrokers) {
            // A test of the lowest harness starts brokers as it likes. Others are made before the first is started.
            for (Class<?> type = Judge.instance.getClass(); type != null; type = type.getSuperclass())
                if (type.getName().equals("kafka.server.QuorumTestHarness")) return Integer.MAX_VALUE;
            return brokers.size();
        } catch (ReflectiveOperationException | NullPointerException ignored) {
            return brokers.size();
        }
        return brokers.size();
    }

    /** Whether brokers are still to be started for the first time. */
    synchronized boolean isIncomplete() {
        int expected = expected();
        return expected != Integer.MAX_VALUE && brokers.stream().filter(Ottla::wasStarted).count() < expected;
    }

    Set<Integer> running() {
        return brokers.stream().filter(Ottla::isRunning).map(broker -> broker.id).collect(Collectors.toSet());
    }

    /** The broker that is the controller. */
    public Ottla controller() {
        int id = new View(any()).metadata(List.of()).data().controllerId();
        return brokers.stream().filter(each -> each.id == id && each.isRunning()).findFirst().orElseGet(this::any);
    }

    /** A broker that runs, to ask about the cluster. */
    public Ottla any() {
        return brokers.stream().filter(Ottla::isRunning).findFirst()
            .orElseThrow(() -> new IllegalStateException("no broker of this cluster runs"));
    }
}
