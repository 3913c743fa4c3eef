{{- define "waybill.labels" -}}
app.kubernetes.io/name: waybill
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "waybill.relayLabels" -}}
{{ include "waybill.labels" . }}
app.kubernetes.io/component: relay
{{- end }}

{{- define "waybill.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "waybill.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
# makes the files of the secret readable for the process
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "waybill.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ['ALL']
{{- end }}
