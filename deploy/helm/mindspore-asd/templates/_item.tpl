{{- /* One manifest with the values put in. */}}
{{- define "asd.item" }}
{{- $item := .item }}{{ $values := .values }}
{{- if eq (default "" $item.metadata.namespace) "asd" }}{{ $_ := set $item.metadata "namespace" .namespace }}{{ end }}
{{- with and (hasPrefix "monitoring." $item.apiVersion) $values.monitoringLabels }}
{{- $_ := set $item.metadata "labels" . }}
{{- end }}
{{- range $subject := $item.subjects }}{{ $_ := set $subject "namespace" $.namespace }}{{ end }}
{{- if has $item.kind (list "DaemonSet" "Deployment") }}
{{- $pod := $item.spec.template.spec }}
{{- range $container := concat $pod.containers (default list $pod.initContainers) }}
{{- $_ := set $container "image" $values.image }}
{{- $_ := set $container "imagePullPolicy" $values.imagePullPolicy }}
{{- end }}
{{- $container := first $pod.containers }}
{{- $args := list }}
{{- range $arg := $container.args }}
{{- if hasPrefix "--agents=" $arg }}
{{- $args = append $args (replace "kubernetes:asd/" (printf "kubernetes:%s/" $.namespace) $arg) }}
{{- else if hasPrefix "--lease=" $arg }}
{{- $args = append $args (printf "--lease=%s/asd-handler" $.namespace) }}
{{- else if hasPrefix "--jobs=" $arg }}
{{- $args = append $args (replace "@asd" (printf "@%s" (join "," (prepend $values.jobNamespaces $.namespace))) $arg) }}
{{- else if hasPrefix "--isolator=" $arg }}
{{- $args = append $args (printf "--isolator=%s" $values.handler.isolator) }}
{{- else if or (ne $arg "--dry-run") $values.handler.dryRun }}
{{- $args = append $args $arg }}
{{- end }}
{{- end }}
{{- if $values.tls }}
{{- if eq $item.kind "Deployment" }}{{ $args = append $args "--agents-config=/tls/client.yml" }}{{ end }}
{{- $args = append $args "--web-config=/tls/web.yml" }}
{{- $_ := set $item.spec.template.metadata.annotations "prometheus.io/scheme" "https" }}
{{- range $probe := list "livenessProbe" "readinessProbe" }}
{{- $_ := set $container $probe (dict "tcpSocket" (dict "port" "metrics")) }}
{{- end }}
{{- $mount := dict "name" "tls" "mountPath" "/tls" "readOnly" true }}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts $mount) }}
{{- $told := dict "configMap" (dict "name" "asd-tls") }}
{{- $secret := dict "secret" (dict "name" (printf "%s-tls" $item.metadata.name)) }}
{{- $projected := dict "defaultMode" 288 "sources" (list $told $secret) }}
{{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" "tls" "projected" $projected)) }}
{{- end }}
{{- $own := ternary $values.agent $values.handler (eq $item.kind "DaemonSet") }}
{{- $_ := set $container "args" (concat $args $own.args) }}
{{- $_ := set $pod "tolerations" (concat $pod.tolerations $own.tolerations) }}
{{- with $own.nodeSelector }}{{ $_ := set $pod "nodeSelector" . }}{{ end }}
{{- with $own.resources }}{{ $_ := set $container "resources" . }}{{ end }}
{{- with $values.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end }}
{{- else if and $values.tls (eq $item.kind "ServiceMonitor") }}
{{- $endpoint := first $item.spec.endpoints }}
{{- $tls := dict "serverName" $item.metadata.name "keySecret" (dict "name" "asd-prometheus-tls" "key" "tls.key") }}
{{- range $name, $key := dict "ca" "ca.crt" "cert" "tls.crt" }}
{{- $_ := set $tls $name (dict "secret" (dict "name" "asd-prometheus-tls" "key" $key)) }}
{{- end }}
{{- $_ := set $endpoint "scheme" "https" }}
{{- $_ := set $endpoint "tlsConfig" $tls }}
{{- end }}
{{- toYaml $item }}
{{- end }}
