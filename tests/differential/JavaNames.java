import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import java.util.Scanner;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Lines of `name <hex of a DER name>` and `rule <base64 of rules> <base64 of a name>`; prints base64 of a result, or ! and an error. */
public class JavaNames {
    public static void main(String[] args) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ", -1);
            String answer;
            try {
                answer = "=" + base64(words[0].equals("name")
                    ? new X500Principal(HexFormat.of().parseHex(words[1])).getName()
                    : SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2])));
            } catch (Exception error) {
                answer = "!" + base64(error.getClass().getSimpleName());
            }
            System.out.println(answer);
        }
    }

    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    private static String base64(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
