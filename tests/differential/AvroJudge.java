import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.SchemaValidationException;
import org.apache.avro.SchemaValidatorBuilder;

/** Answers questions about Avro schemas, one JSON object a line: {"parse": [texts]} or {"reader": text, "writer": text}. */
public class AvroJudge {
    static Schema parse(JsonNode texts, List<Schema> before) {
        Schema.Parser parser = new Schema.Parser(NameValidator.STRICT_VALIDATOR);
        Schema last = null;
        for (JsonNode text : texts) {
            if (last != null) before.add(last);
            last = parser.parse(text.textValue());
        }
        return last;
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode asked = json.readTree(line);
            ObjectNode answer = json.createObjectNode();
            try {
                if (asked.has("parse")) {
                    List<Schema> before = new ArrayList<>();
                    Schema schema = parse(asked.get("parse"), before);
                    answer.put("text", schema.toString(before, false));
                } else {
                    Schema reader = new Schema.Parser(NameValidator.STRICT_VALIDATOR).parse(asked.get("reader").textValue());
                    Schema writer = new Schema.Parser(NameValidator.STRICT_VALIDATOR).parse(asked.get("writer").textValue());
                    var kinds = json.createArrayNode();
                    try {
                        var result = SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getResult();
                        for (var each : result.getIncompatibilities()) kinds.add(each.getType() + " " + each.getLocation());
                        answer.put("compatible", result.getIncompatibilities().isEmpty());
                    } catch (RuntimeException error) {
                        answer.put("compatible", false);
                    }
                    answer.set("kinds", kinds);
                    try {
                        new SchemaValidatorBuilder().canReadStrategy().validateLatest().validate(reader, List.of(writer));
                        answer.put("valid", true);
                    } catch (SchemaValidationException | RuntimeException error) {
                        answer.put("valid", false);
                    } catch (StackOverflowError error) {
                        answer.putNull("valid"); // a record that contains itself without a union
                    }
                }
            } catch (RuntimeException error) {
                answer.put("error", String.valueOf(error.getMessage()));
            }
            out.println(json.writeValueAsString(answer));
        }
        out.flush();
    }
}
