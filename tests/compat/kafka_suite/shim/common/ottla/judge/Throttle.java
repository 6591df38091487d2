package ottla.judge;

import com.yammer.metrics.core.Gauge;
import com.yammer.metrics.core.Histogram;
import com.yammer.metrics.core.Metric;
import com.yammer.metrics.core.MetricName;
import com.yammer.metrics.core.MetricsRegistry;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Method;
import java.util.AbstractMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;
import org.mockito.Mockito;

/**
 * The broker's metrics of throttled clients, as far as clients see them: the largest throttle time of the responses to a client id.
 * A door sees the responses that pass it; the clients of the JVM publish theirs.
 */
public final class Throttle {
    private static final Map<String, Integer> SEEN = new ConcurrentHashMap<>();

    private Throttle() {}

    /** Produce and fetch requests are counted for the quotas of their own, all others for that of requests. */
    static void saw(ApiKeys api, String clientId, int throttleTimeMs) {
        String quota = api == ApiKeys.PRODUCE || api == ApiKeys.FETCH ? api.name : "Request";
        SEEN.merge(quota + " " + clientId, throttleTimeMs, Math::max);
    }

    static void begin() {
        SEEN.clear();
    }

    /** Milliseconds, 0 if the client was never throttled, -1 if nobody has seen this client. */
    private static double largest(String quota, String clientId) {
        double found = published(Sanitizer.jmxSanitize(clientId), quota.equalsIgnoreCase("Produce"));
        return found >= 0 ? found : SEEN.getOrDefault(quota + " " + clientId, -1);
    }

    /** The largest throttle time that clients of the JVM publish; `*` for all of them. */
    private static double published(String clientId, boolean isProducer) {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        String bean = isProducer
            ? "kafka.producer:type=producer-metrics,client-id=" : "kafka.consumer:type=consumer-fetch-manager-metrics,client-id=";
        String attribute = isProducer ? "produce-throttle-time-max" : "fetch-throttle-time-max";
        double found = -1;
        try {
            for (ObjectName name : server.queryNames(new ObjectName(bean + clientId), null)) {
                double value = (Double) server.getAttribute(name, attribute);
                found = Math.max(found, Double.isNaN(value) ? 0 : value);
            }
        } catch (JMException gone) {
            return found;
        }
        return found;
    }

    /** Metrics of a broker in which tests find `throttle-time`. */
    public static Metrics metrics() {
        Metrics real = new Metrics();
        Map<org.apache.kafka.common.MetricName, KafkaMetric> found = new AbstractMap<>() {
            @Override
            public Set<Entry<org.apache.kafka.common.MetricName, KafkaMetric>> entrySet() {
                return real.metrics().entrySet();
            }

            @Override
            public KafkaMetric get(Object key) {
                return metric(real, (org.apache.kafka.common.MetricName) key);
            }
        };
        return Mockito.mock(Metrics.class, Mockito.withSettings().stubOnly().defaultAnswer(invocation -> {
            if (invocation.getMethod().getName().equals("metrics")) return found;
            return invocation.getMethod().invoke(real, invocation.getRawArguments());
        }));
    }

    private static KafkaMetric metric(Metrics real, org.apache.kafka.common.MetricName name) {
        if (!name.name().equals("throttle-time")) return real.metrics().get(name);
        double found = largest(name.group(), name.tags().get("client-id"));
        if (found < 0) return null;
        org.apache.kafka.common.metrics.Gauge<Double> value = (config, now) -> found == 0 ? Double.NaN : found;
        return new KafkaMetric(new Object(), name, value, new MetricConfig(), Time.SYSTEM);
    }

    /** Register what Kafka's broker has in the registry of the JVM. A harness clears the registry after each test. */
    static void register() {
        for (String api : new String[] {"Produce", "FetchConsumer"}) {
            Histogram histogram = StandIn.calls().on("max", none -> Math.max(0, published("*", api.equals("Produce")))).as(Histogram.class);
            String bean = "kafka.network:type=RequestMetrics,name=ThrottleTimeMs,request=" + api;
            register(new MetricName("kafka.network", "RequestMetrics", "ThrottleTimeMs", null, bean), histogram);
        }
        register(new MetricName("kafka.network", "SocketServer", "ExpiredConnectionsKilledCount"), new Gauge<Double>() {
            @Override
            public Double value() {
                return (double) Ottla.linesWith("has expired (connections.max.reauth.ms)");
            }
        });
    }

    private static void register(MetricName name, Metric metric) {
        try {
            Method method = MetricsRegistry.class.getDeclaredMethod("getOrAdd", MetricName.class, Metric.class);
            method.setAccessible(true);
            method.invoke(KafkaYammerMetrics.defaultRegistry(), name, metric);
        } catch (ReflectiveOperationException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
