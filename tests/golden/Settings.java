import org.apache.kafka.common.config.ConfigDef;

/** Prints the settings of a broker of Apache Kafka 3.9: name and type. */
public class Settings {
    public static void main(String[] words) throws Exception {
        ConfigDef settings = (ConfigDef) Class.forName("kafka.server.KafkaConfig").getMethod("configDef").invoke(null);
        for (ConfigDef.ConfigKey setting : new java.util.TreeMap<>(settings.configKeys()).values())
            System.out.println(setting.name + " " + setting.type);
    }
}
