import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** TLS with the PEM files of a directory: ca.crt, client.crt, client.key. */
final class Certs {
    private Certs() {}

    static Path file(String name) {
        return Path.of(System.getenv("REDIS_CERTS"), name);
    }

    static SSLContext context() throws Exception {
        KeyStore known = KeyStore.getInstance("PKCS12");
        known.load(null, null);
        known.setCertificateEntry("ca", certificate("ca.crt"));
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(known);
        KeyStore own = KeyStore.getInstance("PKCS12");
        own.load(null, null);
        String pem = Files.readString(file("client.key")).replaceAll("-----[^-]+-----|\\s", "");
        PrivateKey key = KeyFactory.getInstance("RSA")
                .generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(pem)));
        own.setKeyEntry("client", key, new char[0], new Certificate[] {certificate("client.crt")});
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(own, new char[0]);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }

    private static Certificate certificate(String name) throws Exception {
        try (InputStream pem = Files.newInputStream(file(name))) {
            return CertificateFactory.getInstance("X.509").generateCertificate(pem);
        }
    }
}
