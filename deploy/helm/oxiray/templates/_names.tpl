{{- define "oxiray.name" -}}
{{- default "oxiray-operator" .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* The release's name, of which one part is enough. */}}
{{- define "oxiray.fullname" -}}
{{- $name := ternary .Release.Name (printf "%s-operator" .Release.Name) (hasSuffix "operator" .Release.Name) }}
{{- default $name .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "oxiray.serviceAccount" -}}
{{- $made := ternary (include "oxiray.fullname" .) "default" .Values.serviceAccount.create }}
{{- default $made .Values.serviceAccount.name }}
{{- end }}

{{- define "oxiray.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- /* The namespaces that are watched, as JSON; none for all. */}}
{{- define "oxiray.watched" -}}
{{- if and .Values.watchAllNamespaces .Values.watchNamespaces }}
{{- fail "watchAllNamespaces is true and watchNamespaces names some: set one of them" }}
{{- end }}
{{- ternary list (default (list .Release.Namespace) .Values.watchNamespaces) .Values.watchAllNamespaces | toJson }}
{{- end }}

{{- define "oxiray.selector" -}}
app.kubernetes.io/name: {{ include "oxiray.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "oxiray.labels" -}}
{{ include "oxiray.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}
