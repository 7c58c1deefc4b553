{{- define "pgoutbox.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "pgoutbox.workers" -}}{{ include "pgoutbox.fullname" . }}-workers{{- end -}}
{{- define "pgoutbox.operator" -}}{{ include "pgoutbox.fullname" . }}-operator{{- end -}}

{{/* What an object is selected by: never changed, since a Deployment's selector cannot be. */}}
{{- define "pgoutbox.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "pgoutbox.labels" -}}
{{ include "pgoutbox.selector" . }}
app.kubernetes.io/part-of: pgoutbox
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "pgoutbox.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "pgoutbox.serviceAccount" -}}
{{- if .Values.workers.serviceAccount.create -}}
{{ default (include "pgoutbox.workers" .) .Values.workers.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.workers.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{/* The level "restricted" of pod security, for every pod and container here. */}}
{{- define "pgoutbox.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "pgoutbox.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* How to reach the database, by a file: the kubelet renews it when the Secret changes. */}}
{{- define "pgoutbox.databaseEnv" -}}
- name: PGOUTBOX_DSN_FILE
  value: /etc/pgoutbox/database/{{ .Values.database.key }}
- name: PGOUTBOX_DATABASE__SCHEMA
  value: {{ .Values.database.schema | quote }}
{{- if .Values.database.insecure }}
- name: PGOUTBOX_DATABASE__INSECURE
  value: "true"
{{- end }}
{{- end -}}

{{- define "pgoutbox.databaseMounts" -}}
- name: database
  mountPath: /etc/pgoutbox/database
  readOnly: true
{{- if .Values.database.caSecret }}
- name: ca
  mountPath: /etc/pgoutbox/ca
  readOnly: true
{{- end }}
{{- end -}}

{{/* With the name of the Secret: workers, migrations and the operator may log in as different roles. */}}
{{- define "pgoutbox.databaseVolumes" -}}
- name: database
  secret:
    secretName: {{ .secret | quote }}
    defaultMode: 0440
{{- if .root.Values.database.caSecret }}
- name: ca
  secret:
    secretName: {{ .root.Values.database.caSecret | quote }}
{{- end }}
{{- end -}}

{{- define "pgoutbox.tracingEnv" -}}
{{- if .Values.tracing.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .Values.tracing.endpoint | quote }}
- name: OTEL_SERVICE_NAME
  value: {{ .Values.tracing.serviceName | quote }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.pod.name=$(POD_NAME),k8s.pod.uid=$(POD_UID),k8s.namespace.name=$(POD_NAMESPACE),k8s.node.name=$(NODE_NAME)
{{- end }}
{{- end -}}

{{- define "pgoutbox.downwardEnv" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_UID
  valueFrom:
    fieldRef:
      fieldPath: metadata.uid
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- end -}}
