{{- define "flowjoin.labels" -}}
app: {{ .Values.nameOverride }}
app.kubernetes.io/name: flowjoin
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "flowjoin.selector" -}}
app: {{ .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "flowjoin.configMap" -}}
{{ default (printf "%s-configmap" .Values.nameOverride) .Values.existingConfigMap }}
{{- end }}
{{- define "flowjoin.agentLabels" -}}
app: {{ .Values.agent.name }}
app.kubernetes.io/name: flowjoin
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- /* The destinations of the configuration, one after the other; empty without any. */ -}}
{{- define "flowjoin.destinations" -}}
{{- range $sink := list "flowCollector" "clickHouse" "s3Uploader" "flowLogger" -}}
{{- if (get $.Values.config $sink | default dict).enable }}{{ $sink }} {{ end -}}
{{- end -}}
{{- range .Values.config.exporters }}{{ .type }} {{ end -}}
{{- end }}
