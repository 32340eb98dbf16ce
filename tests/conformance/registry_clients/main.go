// franz-go's registry client: every call of it that a registry answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/sr"
)

func check(condition bool, what string, values ...any) {
	if !condition {
		fmt.Println("failed:", what, fmt.Sprint(values...))
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	client, err := sr.NewClient(sr.URLs(os.Args[1]))
	check(err == nil, "client", err)
	user := sr.Schema{Schema: `{"type":"record","name":"User","fields":[{"name":"id","type":"int"}]}`}
	other := sr.Schema{Schema: `{"type":"record","name":"User","fields":[{"name":"x","type":"string"}]}`}

	created, err := client.CreateSchema(ctx, "go-value", user)
	check(err == nil && created.Version == 1, "create", err, created)
	again, err := client.CreateSchema(ctx, "go-value", user)
	check(err == nil && again.ID == created.ID, "create again", err)
	found, err := client.LookupSchema(ctx, "go-value", user)
	check(err == nil && found.ID == created.ID && found.Version == 1, "look up", err)
	byID, err := client.SchemaByID(ctx, created.ID)
	check(err == nil && byID.Schema == user.Schema, "by id", err, byID.Schema)
	text, err := client.SchemaTextByID(ctx, created.ID)
	check(err == nil && text == user.Schema, "text", err, text)
	subjects, err := client.SubjectsByID(ctx, created.ID)
	check(err == nil && len(subjects) == 1, "subjects by id", err, subjects)
	versions, err := client.SubjectVersions(ctx, "go-value")
	check(err == nil && len(versions) == 1, "versions", err)
	usages, err := client.SchemaUsagesByID(ctx, created.ID)
	check(err == nil && len(usages) == 1, "usages", err)
	latest, err := client.SchemaByVersion(ctx, "go-value", -1)
	check(err == nil && latest.Version == 1, "latest", err)
	types, err := client.SupportedTypes(ctx)
	check(err == nil && len(types) == 3, "types", err, types)

	result, err := client.CheckCompatibility(ctx, "go-value", -1, other)
	check(err == nil && !result.Is, "compatibility", err)
	_, err = client.CreateSchema(ctx, "go-value", other)
	var refused *sr.ResponseError
	check(errors.As(err, &refused) && refused.StatusCode == 409, "incompatible", err)
	for _, set := range client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatNone}, "go-value") {
		check(set.Err == nil && set.Level == sr.CompatNone, "set level", set.Err)
	}
	for _, level := range client.Compatibility(ctx, "go-value") {
		check(level.Err == nil && level.Level == sr.CompatNone, "level", level.Err)
	}
	for _, level := range client.ResetCompatibility(ctx, "go-value") {
		check(level.Err == nil, "reset level", level.Err)
	}
	for _, mode := range client.SetMode(ctx, sr.ModeReadOnly, "go-value") {
		check(mode.Err == nil && mode.Mode == sr.ModeReadOnly, "set mode", mode.Err)
	}
	_, err = client.DeleteSubject(ctx, "go-value", sr.SoftDelete)
	check(errors.As(err, &refused) && refused.ErrorCode == 42205, "read-only", err)
	for _, mode := range client.ResetMode(ctx, "go-value") {
		check(mode.Err == nil, "reset mode", mode.Err)
	}

	address := sr.Schema{Type: sr.TypeProtobuf, Schema: `syntax = "proto3"; message A { string c = 1; }`}
	_, err = client.CreateSchema(ctx, "go-address", address)
	check(err == nil, "protobuf", err)
	customer := sr.Schema{Type: sr.TypeProtobuf,
		Schema:     `syntax = "proto3"; import "a.proto"; message C { A a = 1; }`,
		References: []sr.SchemaReference{{Name: "a.proto", Subject: "go-address", Version: 1}}}
	referring, err := client.CreateSchema(ctx, "go-customer", customer)
	check(err == nil, "reference", err)
	referrers, err := client.SchemaReferences(ctx, "go-address", 1)
	check(err == nil && len(referrers) == 1 && referrers[0].ID == referring.ID, "references", err)
	_, err = client.DeleteSubject(ctx, "go-address", sr.SoftDelete)
	check(errors.As(err, &refused) && refused.ErrorCode == 42206, "referenced", err)

	deleted, err := client.DeleteSubject(ctx, "go-value", sr.SoftDelete)
	check(err == nil && len(deleted) == 1, "soft delete", err)
	deleted, err = client.DeleteSubject(ctx, "go-value", sr.HardDelete)
	check(err == nil && len(deleted) == 1, "hard delete", err)
	all, err := client.AllSchemas(ctx)
	check(err == nil && len(all) == 2, "all schemas", err, len(all))
	fmt.Println("all passed")
}
