# Sourced. Certificates and kubeconfigs of a cluster; elliptic keys, because RSA ones take longer than the API server's start.
# Reads $pki (folder), $state and $address.

key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)

authority() {
  openssl req -x509 "${key[@]}" -days 3650 -subj /CN=kubectl-ray-local -keyout "$pki/ca.key" -out "$pki/ca.crt" 2> /dev/null
  openssl ecparam -name prime256v1 -genkey -noout -out "$pki/service-account.key"
  openssl ec -in "$pki/service-account.key" -pubout -out "$pki/service-account.pub" 2> /dev/null
}

# certificate NAME SUBJECT EXTENSIONS: a leaf signed by the authority. basicConstraints matters: rustls refuses a CA as a leaf.
certificate() {
  openssl req "${key[@]}" -subj "$2" -keyout "$pki/$1.key" -out "$pki/$1.csr" 2> /dev/null
  openssl x509 -req -days 3650 -in "$pki/$1.csr" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -set_serial "0x$(openssl rand -hex 16)" \
    -extfile <(printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=digitalSignature\n%s\n' "$3") -out "$pki/$1.crt" 2> /dev/null
  rm "$pki/$1.csr"
}

server_certificate() { certificate "$1" "/CN=$1" "extendedKeyUsage=serverAuth"$'\n'"subjectAltName=$2"; }
client_certificate() { certificate "$1" "$2" "extendedKeyUsage=clientAuth"; }

# kubeconfig NAME SUBJECT FILE: a client certificate for SUBJECT, and a kubeconfig that holds it.
kubeconfig() {
  client_certificate "$1" "$2"
  install -m 600 /dev/null "$3"
  cat > "$3" <<K
apiVersion: v1
kind: Config
clusters:
- name: local
  cluster:
    server: https://$address:6443
    certificate-authority-data: $(base64 -w0 "$pki/ca.crt")
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w0 "$pki/$1.crt")
    client-key-data: $(base64 -w0 "$pki/$1.key")
contexts:
- name: local
  context: {cluster: local, user: $1}
current-context: local
K
}
