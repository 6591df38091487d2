import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

/** Reads "samples sample_ms limit" and "+ time value" lines; answers each value with Kafka's rate, window and tokens. */
public class Rates {
    public static void main(String[] arguments) {
        Scanner input = new Scanner(System.in);
        MetricConfig config = null;
        Rate rate = null;
        TokenBucket bucket = null;
        while (input.hasNext()) {
            String first = input.next();
            if (!first.equals("+")) {
                config = new MetricConfig().samples(Integer.parseInt(first)).timeWindow(input.nextLong(), TimeUnit.MILLISECONDS);
                config.quota(Quota.upperBound(Double.parseDouble(input.next())));
                rate = new Rate();
                bucket = new TokenBucket();
                continue;
            }
            long time = input.nextLong();
            double value = Double.parseDouble(input.next());
            rate.record(config, value, time);
            bucket.record(config, value, time);
            System.out.println(rate.measure(config, time) + " " + rate.windowSize(config, time) + " " + bucket.measure(config, time));
        }
    }
}
