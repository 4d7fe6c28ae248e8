import { mount } from "svelte";
import App from "./App.svelte";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/layout.css";

mount(App, { target: document.getElementById("app")! });
