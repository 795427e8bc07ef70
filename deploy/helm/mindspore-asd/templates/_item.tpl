{{- /* One manifest with the values put in. */}}
{{- define "asd.item" }}
{{- $item := .item }}{{ $values := .values }}
{{- if eq (default "" $item.metadata.namespace) "asd" }}{{ $_ := set $item.metadata "namespace" .namespace }}{{ end }}
{{- range $subject := $item.subjects }}{{ $_ := set $subject "namespace" $.namespace }}{{ end }}
{{- if eq $item.kind "PersistentVolumeClaim" }}
{{- with ternary $values.runsStorageClass $values.stateStorageClass (eq $item.metadata.name "asd-runs") }}
{{- $_ := set $item.spec "storageClassName" . }}
{{- end }}
{{- else if has $item.kind (list "DaemonSet" "Deployment") }}
{{- $pod := $item.spec.template.spec }}
{{- range $container := concat $pod.containers (default list $pod.initContainers) }}
{{- $_ := set $container "image" $values.image }}
{{- $_ := set $container "imagePullPolicy" $values.imagePullPolicy }}
{{- end }}
{{- $container := first $pod.containers }}
{{- $claim := dict "name" "runs" "persistentVolumeClaim" (dict "claimName" "asd-runs") }}
{{- if eq $item.kind "DaemonSet" }}
{{- $_ := set $container "args" (concat $container.args $values.agent.args) }}
{{- if eq $values.runs "claim" }}
{{- $_ := unset $pod "initContainers" }}
{{- $_ := set $pod "volumes" (prepend (rest $pod.volumes) $claim) }}
{{- end }}
{{- else }}
{{- $args := list }}
{{- range $arg := $container.args }}
{{- if hasPrefix "--agents=" $arg }}
{{- $args = append $args (ternary "--run-dir=/runs" (replace "kubernetes:asd/" (printf "kubernetes:%s/" $.namespace) $arg) (eq $values.runs "claim")) }}
{{- else if hasPrefix "--isolator=" $arg }}
{{- $args = append $args (printf "--isolator=%s" $values.handler.isolator) }}
{{- else if or (ne $arg "--dry-run") $values.handler.dryRun }}
{{- $args = append $args $arg }}
{{- end }}
{{- end }}
{{- if $values.handler.standby }}
{{- $args = append $args (printf "--lease=%s/asd-handler" $.namespace) }}
{{- $_ := set $item.spec "replicas" 2 }}
{{- $_ := set $item.spec "strategy" (dict "type" "RollingUpdate") }}
{{- $_ := set $pod "volumes" (prepend (rest $pod.volumes) (dict "name" "state" "emptyDir" dict)) }}
{{- end }}
{{- $_ := set $container "args" (concat $args $values.handler.args) }}
{{- if eq $values.runs "claim" }}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts (dict "name" "runs" "mountPath" "/runs")) }}
{{- $_ := set $pod "volumes" (append $pod.volumes $claim) }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $item }}
{{- end }}
