package ottla.judge;

import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.message.SaslAuthenticateRequestData;
import org.apache.kafka.common.message.SaslHandshakeRequestData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.SaslAuthenticateRequest;
import org.apache.kafka.common.requests.SaslAuthenticateResponse;
import org.apache.kafka.common.requests.SaslHandshakeRequest;
import org.apache.kafka.common.requests.SaslHandshakeResponse;

/** One connection to one broker, to ask that broker and no other. */
public final class Wire implements AutoCloseable {
    private final Socket socket = new Socket();
    private int correlation = 0;

    public Wire(int port) throws IOException {
        socket.setTcpNoDelay(true);
        socket.setSoTimeout(30_000);
        socket.connect(new InetSocketAddress("localhost", port), 5_000);
    }

    public Socket socket() {
        return socket;
    }

    /** Log in with PLAIN. */
    public Wire as(String user, String password) throws IOException {
        SaslHandshakeResponse first = (SaslHandshakeResponse) ask(
            new SaslHandshakeRequest.Builder(new SaslHandshakeRequestData().setMechanism("PLAIN")).build((short) 1));
        if (first.error() != Errors.NONE) throw new IOException("SaslHandshake: " + first.error());
        byte[] token = ("\0" + user + "\0" + password).getBytes(StandardCharsets.UTF_8);
        SaslAuthenticateResponse second = (SaslAuthenticateResponse) ask(
            new SaslAuthenticateRequest.Builder(new SaslAuthenticateRequestData().setAuthBytes(token)).build((short) 1));
        if (second.error() != Errors.NONE) throw new IOException("SaslAuthenticate: " + second.errorMessage());
        return this;
    }

    public AbstractResponse ask(AbstractRequest request) throws IOException {
        RequestHeader header = new RequestHeader(request.apiKey(), request.version(), "ottla-judge", correlation++);
        ByteBuffer body = request.serializeWithHeader(header);
        byte[] frame = new byte[4 + body.remaining()];
        ByteBuffer.wrap(frame).putInt(body.remaining()).put(body);
        socket.getOutputStream().write(frame);
        DataInputStream input = new DataInputStream(socket.getInputStream());
        byte[] answer = new byte[input.readInt()];
        input.readFully(answer);
        return AbstractResponse.parseResponse(ByteBuffer.wrap(answer), header);
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException ignored) {
            // It is closed either way.
        }
    }
}
