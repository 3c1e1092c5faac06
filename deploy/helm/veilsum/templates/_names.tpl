{{- /* A Service's name has at most 63 characters, and a release's 53. */ -}}
{{- define "veilsum.name" -}}
{{ .Release.Name | trunc 51 | trimSuffix "-" }}-coordinator
{{- end }}
